#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>

namespace lockstep {

/// Bytes that a rank keeps between steps.
struct StateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  [[nodiscard]] std::size_t total() const noexcept { return parameters + gradients + optimizer; }
};

/// What `--shard` costs a rank.
struct ShardCost {
  StateBytes state;
  double sent = 0;         ///< bytes a rank sends in a step, by algorithms that send the least
  double sent_across = 0;  ///< of them, to ranks of other groups; with `hybrid`
};

/// Of a network with that layout, whose optimizer has `slots` arenas, on `ranks` ranks; from
/// config: shard, shard_group, accumulate, accumulate_full_gradients. Pure.
[[nodiscard]] ShardCost shard_cost(const Config& config, const ArenaLayout& layout, int ranks,
                                   std::size_t slots);

}  // namespace lockstep
