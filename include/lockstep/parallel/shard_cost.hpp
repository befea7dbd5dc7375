#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

/// Data type of the gradient reduction: f32, bf16 or f16.
[[nodiscard]] ElementType reduce_dtype(const Config& config) noexcept;
/// Data type of all-gathered weights: fp32, or bf16 or fp16 if the engine computes in it.
[[nodiscard]] Precision parameter_type(const Config& config) noexcept;

/// Bytes that a rank keeps between steps.
struct StateBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  /// Copy of parameters and optimizer state for a save: all of them on rank 0, or each rank's
  /// shard and rank 0's buffer for arriving units.
  std::size_t copy = 0;
  [[nodiscard]] std::size_t total() const noexcept {
    return parameters + gradients + optimizer + copy;
  }
};

/// Most values of units that have arrived for a save and are not written; one unit may be larger.
inline constexpr std::size_t most_gathered_values = std::size_t{2} << 20;
/// Size of rank 0's buffer for the units of `arenas` arenas, in values. Pure.
[[nodiscard]] std::size_t gather_buffer_size(std::span<const ArenaUnit> units, std::size_t arenas,
                                             std::size_t most = most_gathered_values);

/// Memory and traffic of a rank under `--shard`.
struct ShardCost {
  StateBytes state;             ///< rank 0's, the largest
  std::size_t others_copy = 0;  ///< StateBytes::copy of each other rank of rank 0's shard group
  double sent = 0;              ///< bytes a rank sends in a step, with bandwidth-optimal algorithms
  double sent_across = 0;       ///< part of `sent` to other shard groups; with `hybrid`
};

/// Cost of a network with that layout and an optimizer of `slots` arenas, on `ranks` ranks. Reads
/// from config: shard, shard_group, accumulate, accumulate_full_gradients, precision and the
/// communication data types. Counts parameters that backward does not use (a first filter without
/// its norm) as gathered for backward. Pure.
[[nodiscard]] ShardCost shard_cost(const Config& config, const ArenaLayout& layout, int ranks,
                                   std::size_t slots);

}  // namespace lockstep
