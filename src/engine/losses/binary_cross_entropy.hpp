#pragma once

#include "loss_row.hpp"

#include <cmath>

namespace lockstep {

struct BinaryCrossEntropy;

/// The mean over the K classes of -t log p - (1 - t) log(1 - p), with p the sigmoid of the logit
/// and t the target. As timm's BinaryCrossEntropy.
struct BinaryCrossEntropyTerms {
  using Op = BinaryCrossEntropy;
  struct Sums {
    double terms;
    LOCKSTEP_HOST_DEVICE void merge(const Sums& other) { terms += other.terms; }
  };
  LossTargets targets;

  LOCKSTEP_HOST_DEVICE void add(Sums& sums, const LossRow& row, std::int64_t k) const {
    const auto logit = static_cast<double>(row.logits[k]);
    const double size = logit < 0 ? -logit : logit;
    sums.terms +=
        (logit < 0 ? 0.0 : logit) - logit * targets.of(row.target, k) + std::log1p(std::exp(-size));
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double loss(const Sums& sums, const LossRow&) const {
    return sums.terms / static_cast<double>(targets.classes);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double kept(const Sums&, const LossRow&) const { return 0; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double gradient(double logit, double target, double) const {
    return (1 / (1 + std::exp(-logit)) - target) / static_cast<double>(targets.classes);
  }
};

}  // namespace lockstep
