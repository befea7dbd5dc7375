#pragma once

#include "lockstep/core/targets.hpp"

#include <cstdint>

namespace lockstep {

/// The target of each class: its share of the sample's labels, smoothed; then, if there is a
/// threshold, 1 above it and else 0. Hosts and devices compute the same bits.
struct LossTargets {
  std::int64_t classes;
  double label_smoothing;
  double threshold;      ///< 0: none
  double share_of_each;  ///< of every class, by smoothing

  [[nodiscard]] LOCKSTEP_HOST_DEVICE double of(const SampleTarget& target, std::int64_t k) const {
    const double smoothed = share_of_each + (1 - label_smoothing) * target.share(k);
    if (threshold == 0) return smoothed;
    return smoothed > threshold ? 1.0 : 0.0;
  }
};
/// `threshold` 0: none.
[[nodiscard]] inline LossTargets loss_targets(std::int64_t classes, double label_smoothing,
                                              double threshold = 0) {
  return {.classes = classes,
          .label_smoothing = label_smoothing,
          .threshold = threshold,
          .share_of_each = label_smoothing / static_cast<double>(classes)};
}

/// One sample of a batch.
struct LossRow {
  const float* logits;  ///< (K,)
  float largest;        ///< of the logits
  SampleTarget target;

  /// A logit's distance from the largest.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double gap(std::int64_t k) const {
    return static_cast<double>(logits[k]) - static_cast<double>(largest);
  }
};

}  // namespace lockstep
