#pragma once

#include "kernel_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace lockstep::gpu {

/// Memory for what the kernels of a loss store; NaN and -1 until then.
struct LossValues {
  explicit LossValues(const LossExtent& extent)
      : logits(static_cast<std::size_t>(extent.batch * extent.classes), NAN),
        kept(static_cast<std::size_t>(extent.batch), NAN),
        losses(kept),
        predictions(kept.size(), {.rank = -1}) {}
  [[nodiscard]] LossOutputs view() {
    return {logits.data(), kept.data(), losses.data(), predictions.data()};
  }
  Mirrored<float> logits;
  Mirrored<float> kept;
  Mirrored<float> losses;
  Mirrored<Prediction> predictions;
};

/// The place of a class after a stable sort of a sample's logits, the largest first.
inline std::int64_t rank_of(std::int32_t label, const Values& logits, const LossExtent& extent,
                            std::int64_t sample) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(extent.classes));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::int32_t k) { return logits[sample * extent.padded + k]; });
  return std::ranges::find(order, label) - order.begin();
}

/// Random logits of standard deviation `spread`.
inline Values random_logits(const LossExtent& extent, DataType type, double spread) {
  Values logits = random_matrix(type, {extent.batch, extent.classes, extent.padded}, 1);
  for (std::int64_t i = 0; i < logits.size(); ++i) logits.set(i, logits[i] * spread);
  return logits;
}

}  // namespace lockstep::gpu
