#pragma once

#include "lockstep/core/slice.hpp"
#include "lockstep/data/loader.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// How a global batch is divided over micro-steps and ranks: a step takes positions [p, p + B) of
/// the epoch, micro-step a of rank r takes slice a * world + r of them.
struct BatchGeometry {
  std::int64_t samples = 0;  ///< N, size of the training split
  std::int64_t global_batch = 0;
  int world_size = 1;
  int rank = 0;
  int accumulate = 1;

  [[nodiscard]] std::int64_t steps_per_epoch() const noexcept { return samples / global_batch; }
  [[nodiscard]] std::int64_t epoch_samples() const noexcept {
    return steps_per_epoch() * global_batch;
  }
  /// This rank's slice of micro-step `micro`, as positions relative to the step's first.
  [[nodiscard]] Slice micro_batch(int micro) const noexcept { return micro_batch_of(micro, rank); }
  [[nodiscard]] Slice micro_batch_of(int micro, int of_rank) const noexcept {
    return slice_of(global_batch, std::int64_t{world_size} * accumulate,
                    std::int64_t{micro} * world_size + of_rank);
  }
  /// This rank's samples of a step.
  [[nodiscard]] std::int64_t own_samples() const noexcept;
  /// Samples of all ranks in micro-step `micro`.
  [[nodiscard]] std::int64_t micro_samples(int micro) const noexcept;
  /// Largest and smallest of this rank's micro-batches; they differ by at most one.
  [[nodiscard]] std::int64_t largest_micro_batch() const noexcept { return micro_batch(0).count; }
  [[nodiscard]] std::int64_t smallest_micro_batch() const noexcept {
    return micro_batch(accumulate - 1).count;
  }
};

/// The first micro-batch that begins at an odd position and so separates positions 2k and 2k + 1 of
/// an epoch, if there is one in steps from `position` on.
[[nodiscard]] std::optional<std::int64_t> begin_within_pair(const BatchGeometry& geometry,
                                                            std::int64_t position) noexcept;

/// A position in the order of samples.
struct EpochPosition {
  std::int64_t epoch = 0;
  std::int64_t position = 0;
  friend bool operator==(const EpochPosition&, const EpochPosition&) = default;
};

/// The position one step after `at`; a new epoch begins when less than a global batch is left.
[[nodiscard]] EpochPosition next_position(const BatchGeometry& geometry, EpochPosition at) noexcept;

/// This rank's micro-batches for `steps` steps from `start`, for the loader.
[[nodiscard]] BatchPlan plan_training_batches(const BatchGeometry& geometry, EpochPosition start,
                                              std::int64_t steps);

/// This rank's contiguous slice of [0, samples) once, in batches of `batch_size`.
[[nodiscard]] BatchPlan plan_evaluation_batches(std::int64_t samples, int world_size, int rank,
                                                std::int64_t batch_size);

}  // namespace lockstep
