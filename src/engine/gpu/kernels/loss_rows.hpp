#pragma once

#include "kernels.hpp"

#include <bit>
#include <cstdint>

namespace lockstep::gpu {

LOCKSTEP_HOST_DEVICE inline float infinity() {
  return std::bit_cast<float>(0x7F800000U);
}

/// Counts the logits of a row that are larger than the label's. Without initial values, as shared
/// memory needs it.
struct LargerLogits {
  std::int32_t larger;
  std::int32_t nans;

  LOCKSTEP_HOST_DEVICE void add(float logit, float label_logit) {
    larger += logit > label_logit ? 1 : 0;
    nans += logit != logit ? 1 : 0;
  }
  LOCKSTEP_HOST_DEVICE void merge(const LargerLogits& other) {
    larger += other.larger;
    nans += other.nans;
  }
  /// For LossOutputs::larger: as if it were no hit after NaN, and if the sample does not count.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int32_t result(std::int64_t classes, bool counts) const {
    if (nans > 0 || !counts) return static_cast<std::int32_t>(classes < 5 ? 5 : classes);
    return larger;
  }
};

}  // namespace lockstep::gpu
