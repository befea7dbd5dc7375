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
  std::size_t copy = 0;  ///< rank 0's, for a save; see bytes_to_save()
  [[nodiscard]] std::size_t total() const noexcept {
    return parameters + gradients + optimizer + copy;
  }
};

/// Bytes for a save: a copy of all parameters and of `slots` arenas of the optimizer, and the
/// tensor that is being written.
[[nodiscard]] std::size_t bytes_to_save(const ArenaLayout& layout, std::size_t slots);

/// Memory and traffic of a rank under `--shard`.
struct ShardCost {
  StateBytes state;        ///< rank 0's, the largest
  double sent = 0;         ///< bytes a rank sends in a step, with bandwidth-optimal algorithms
  double sent_across = 0;  ///< part of `sent` to other shard groups; with `hybrid`
};

/// Cost of a network with that layout and an optimizer of `slots` arenas, on `ranks` ranks. Reads
/// from config: shard, shard_group, accumulate, accumulate_full_gradients, precision and the
/// communication data types. Counts parameters that backward does not use (a first filter without
/// its norm) as gathered for backward. Pure.
[[nodiscard]] ShardCost shard_cost(const Config& config, const ArenaLayout& layout, int ranks,
                                   std::size_t slots);

}  // namespace lockstep
