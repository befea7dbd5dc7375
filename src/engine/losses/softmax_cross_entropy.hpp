#pragma once

#include "loss_row.hpp"

#include <cmath>

namespace lockstep {

struct SoftmaxCrossEntropy;

/// -sum over k of t[k] * log p[k], with p the softmax of the logits and t the targets.
struct SoftmaxCrossEntropyTerms {
  using Op = SoftmaxCrossEntropy;
  struct Sums {
    double exponentials;  ///< of the gaps
    double gaps;
    LOCKSTEP_HOST_DEVICE void merge(const Sums& other) {
      exponentials += other.exponentials;
      gaps += other.gaps;
    }
  };
  LossTargets targets;

  LOCKSTEP_HOST_DEVICE void add(Sums& sums, const LossRow& row, std::int64_t k) const {
    const double gap = row.gap(k);
    sums.exponentials += std::exp(gap);
    sums.gaps += gap;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double loss(const Sums& sums, const LossRow& row) const {
    const double log_sum = std::log(sums.exponentials);
    const double label_gap =
        row.target.mean(row.gap(row.target.label), row.gap(row.target.partner));
    const double smoothing = targets.label_smoothing;
    if (smoothing == 0) return log_sum - label_gap;  // a gap may be infinite
    const double mean_gap = sums.gaps / static_cast<double>(targets.classes);
    return log_sum - (1 - smoothing) * label_gap - smoothing * mean_gap;
  }
  /// The log of the sum of the logits' exponentials.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double kept(const Sums& sums, const LossRow& row) const {
    return std::log(sums.exponentials) + static_cast<double>(row.largest);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double gradient(double logit, double target,
                                                     double log_sum) const {
    return std::exp(logit - log_sum) - target;
  }
};

}  // namespace lockstep
