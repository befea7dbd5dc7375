#pragma once

#include <vector>

namespace lockstep {

/// Shard groups consist of consecutive ranks. `group`: this rank's group. `replicas`: the ranks at
/// the same position in each group. Both are ascending and include this rank.
struct RankGroups {
  std::vector<int> group;
  std::vector<int> replicas;
};

/// `group_size` must divide `ranks`. Pure.
[[nodiscard]] inline RankGroups rank_groups(int rank, int ranks, int group_size) {
  RankGroups groups;
  const int first = rank - rank % group_size;
  for (int i = 0; i < group_size; ++i) groups.group.push_back(first + i);
  for (int i = rank % group_size; i < ranks; i += group_size) groups.replicas.push_back(i);
  return groups;
}

}  // namespace lockstep
