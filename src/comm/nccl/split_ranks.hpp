#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// A rank's arguments of Communicator::split().
struct SplitOf {
  std::int32_t color;
  std::int32_t key;
};

/// The ranks of a color in the order of the new communicator; `all`: by rank. Pure.
[[nodiscard]] inline std::vector<int> split_ranks(std::span<const SplitOf> all, int color) {
  std::vector<int> ranks;
  ranks.reserve(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].color == color) ranks.push_back(static_cast<int>(rank));
  }
  std::ranges::stable_sort(ranks, {},
                           [all](int rank) { return all[static_cast<std::size_t>(rank)].key; });
  return ranks;
}

}  // namespace lockstep
