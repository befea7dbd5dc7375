#pragma once

#include "batch_labels.hpp"
#include "lockstep/core/host_device.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep {

/// Binary cross entropy of a sample's logits: the mean over its K classes of
/// -t log p - (1 - t) log(1 - p), with p the sigmoid of the logit. A class's target t is its share
/// of the labels, smoothed; above a threshold it becomes 1, else 0. As timm's BinaryCrossEntropy.
struct BinaryCrossEntropyTerms {
  std::int64_t classes;
  double label_smoothing;
  double target_threshold;  ///< 0: targets stay as they are

  [[nodiscard]] LOCKSTEP_HOST_DEVICE double target(const SampleTarget& labels,
                                                   std::int64_t k) const {
    const double smoothed =
        label_smoothing / static_cast<double>(classes) + (1 - label_smoothing) * labels.share(k);
    if (target_threshold == 0) return smoothed;
    return smoothed > target_threshold ? 1.0 : 0.0;
  }
  /// A class's term of the sum over classes.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static double loss(double logit, double target) {
    const double size = logit < 0 ? -logit : logit;
    return (logit < 0 ? 0.0 : logit) - logit * target + std::log1p(std::exp(-size));
  }
  /// The derivative of the sample's loss.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double gradient(double logit, double target) const {
    return (1 / (1 + std::exp(-logit)) - target) / static_cast<double>(classes);
  }
};

}  // namespace lockstep
