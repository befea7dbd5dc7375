#pragma once

#include "loss_row.hpp"

namespace lockstep {

struct MeanSquaredError;

/// The mean over the K classes of (z - t)^2, with z the logit and t the target. As torch's
/// mse_loss.
struct MeanSquaredErrorTerms {
  using Op = MeanSquaredError;
  struct Sums {
    double squares;
    LOCKSTEP_HOST_DEVICE void merge(const Sums& other) { squares += other.squares; }
  };
  LossTargets targets;

  LOCKSTEP_HOST_DEVICE void add(Sums& sums, const LossRow& row, std::int64_t k) const {
    const double difference = static_cast<double>(row.logits[k]) - targets.of(row.target, k);
    sums.squares += difference * difference;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double loss(const Sums& sums, const LossRow&) const {
    return sums.squares / static_cast<double>(targets.classes);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double kept(const Sums&, const LossRow&) const { return 0; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double gradient(double logit, double target, double) const {
    return 2 * (logit - target) / static_cast<double>(targets.classes);
  }
};

}  // namespace lockstep
