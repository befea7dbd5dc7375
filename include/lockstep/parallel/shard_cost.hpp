#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

/// Data type of the gradient reduction: f32, bf16 or f16.
[[nodiscard]] ElementType reduce_dtype(const Config& config) noexcept;
/// Data type of gathered weights: fp32, or bf16 or fp16 where the engine computes in them.
[[nodiscard]] Precision parameter_type(const Config& config) noexcept;

/// Bytes that a rank keeps between steps.
struct StateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  /// Of parameters and optimizer state, for a save: rank 0's of all, or each rank's of its part,
  /// and rank 0's room for pieces that arrive.
  std::size_t copy = 0;
  [[nodiscard]] std::size_t total() const noexcept {
    return parameters + gradients + optimizer + copy;
  }
};

/// Of pieces that arrive for a save and are not written yet, unless one alone is larger.
inline constexpr std::size_t most_arriving_values = std::size_t{2} << 20;
/// Values that rank 0 has room for, of the pieces of so many arenas. Pure.
[[nodiscard]] std::size_t arrival_room(std::span<const ArenaUnit> pieces, std::size_t arenas,
                                       std::size_t most = most_arriving_values);

/// What `--shard` costs a rank.
struct ShardCost {
  StateBytes state;             ///< rank 0's, which keeps most
  std::size_t others_copy = 0;  ///< copy to save of each other rank of its shard group
  double sent = 0;              ///< bytes a rank sends in a step, by algorithms that send the least
  double sent_across = 0;       ///< of them, to ranks of other groups; with `hybrid`
};

/// Of a network with that layout, whose optimizer has `slots` arenas, on `ranks` ranks; from
/// config: shard, shard_group, accumulate, accumulate_full_gradients, precision and the
/// communication data types. Parameters that backward does not use, as a first filter without its
/// norm, count as gathered for it. Pure.
[[nodiscard]] ShardCost shard_cost(const Config& config, const ArenaLayout& layout, int ranks,
                                   std::size_t slots);

}  // namespace lockstep
