#pragma once

#include <vector>

namespace lockstep {

/// Of a job with shard groups: the ranks beside this one in its group, which come one
/// after another, and those at its place in every group. Both ascend and hold this rank.
struct RankGroups {
  std::vector<int> group;
  std::vector<int> replicas;
};

/// `group_size` divides `ranks`. Pure.
[[nodiscard]] inline RankGroups rank_groups(int rank, int ranks, int group_size) {
  RankGroups groups;
  const int first = rank - rank % group_size;
  for (int i = 0; i < group_size; ++i) groups.group.push_back(first + i);
  for (int i = rank % group_size; i < ranks; i += group_size) groups.replicas.push_back(i);
  return groups;
}

}  // namespace lockstep
