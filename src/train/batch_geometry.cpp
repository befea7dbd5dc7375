#include "lockstep/train/batch_geometry.hpp"

#include <algorithm>

namespace lockstep {

std::int64_t BatchGeometry::own_samples() const noexcept {
  std::int64_t count = 0;
  for (int micro = 0; micro < accumulate; ++micro) count += micro_batch(micro).count;
  return count;
}

std::int64_t BatchGeometry::micro_samples(int micro) const noexcept {
  return micro_batch_of(micro, world_size - 1).end() - micro_batch_of(micro, 0).begin;
}

std::optional<std::int64_t> begin_within_pair(const BatchGeometry& geometry,
                                              std::int64_t position) noexcept {
  if (position % 2 != 0) return position;
  for (int micro = 0; micro < geometry.accumulate; ++micro) {
    for (int rank = 0; rank < geometry.world_size; ++rank) {
      const std::int64_t begin = geometry.micro_batch_of(micro, rank).begin;
      if (begin % 2 != 0) return position + begin;
    }
  }
  // The one step of an epoch may leave its last sample without a partner.
  if (geometry.global_batch % 2 != 0 && geometry.steps_per_epoch() > 1) {
    return position + geometry.global_batch;
  }
  return std::nullopt;
}

EpochPosition next_position(const BatchGeometry& geometry, EpochPosition at) noexcept {
  at.position += geometry.global_batch;
  if (at.position + geometry.global_batch > geometry.samples) {
    return {.epoch = at.epoch + 1, .position = 0};
  }
  return at;
}

BatchPlan plan_training_batches(const BatchGeometry& geometry, EpochPosition start,
                                std::int64_t steps) {
  // Steps left in the first epoch, which may be partly done; later epochs are whole.
  const std::int64_t first_epoch_steps =
      (geometry.samples - start.position) / geometry.global_batch;
  return [=](std::int64_t n) -> std::optional<BatchRequest> {
    const std::int64_t step = n / geometry.accumulate;
    if (step >= steps) return std::nullopt;
    EpochPosition at = start;
    if (step < first_epoch_steps) {
      at.position += step * geometry.global_batch;
    } else {
      const std::int64_t later = step - first_epoch_steps;
      at.epoch += 1 + later / geometry.steps_per_epoch();
      at.position = later % geometry.steps_per_epoch() * geometry.global_batch;
    }
    const Slice slice = geometry.micro_batch(static_cast<int>(n % geometry.accumulate));
    return BatchRequest{.epoch = at.epoch,
                        .first = at.position + slice.begin,
                        .count = slice.count,
                        .step = {.begin = at.position, .count = geometry.global_batch}};
  };
}

BatchPlan plan_evaluation_batches(std::int64_t samples, int world_size, int rank,
                                  std::int64_t batch_size) {
  const Slice share = slice_of(samples, world_size, rank);
  return [=](std::int64_t n) -> std::optional<BatchRequest> {
    const std::int64_t begin = share.begin + n * batch_size;
    if (begin >= share.end()) return std::nullopt;
    return BatchRequest{
        .epoch = 0, .first = begin, .count = std::min(batch_size, share.end() - begin)};
  };
}

}  // namespace lockstep
