#pragma once

#include "kernel_values.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep::gpu {

/// Memory for what the kernels of a loss store; NaN and -1 until then.
struct LossValues {
  explicit LossValues(const LossExtent& extent)
      : logits(static_cast<std::size_t>(extent.batch * extent.classes), NAN),
        log_sums(static_cast<std::size_t>(extent.batch), NAN),
        losses(log_sums),
        larger(log_sums.size(), -1) {}
  [[nodiscard]] LossOutputs view() {
    return {logits.data(), log_sums.data(), losses.data(), larger.data()};
  }
  Mirrored<float> logits;
  Mirrored<float> log_sums;
  Mirrored<float> losses;
  Mirrored<std::int32_t> larger;
};

/// Random logits of standard deviation `spread`.
inline Values random_logits(const LossExtent& extent, DataType type, double spread) {
  Values logits = random_matrix(type, {extent.batch, extent.classes, extent.padded}, 1);
  for (std::int64_t i = 0; i < logits.size(); ++i) logits.set(i, logits[i] * spread);
  return logits;
}

}  // namespace lockstep::gpu
