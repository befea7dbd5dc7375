#pragma once

#include "lockstep/core/label_rank.hpp"
#include "lockstep/core/metrics.hpp"
#include "losses/loss_row.hpp"

#include <cmath>

namespace lockstep {

/// Sums over the classes of a sample, from which its Prediction follows; they begin as zeros.
/// Without initial values, as shared memory needs it.
struct PredictionSums {
  LabelRank label;
  double exponentials;  ///< of the gaps

  LOCKSTEP_HOST_DEVICE void add(const LossRow& row, std::int64_t k, bool measures_confidence) {
    const std::int32_t own = row.target.heavier();
    label.add({.index = k, .logit = row.logits[k]}, {.index = own, .logit = row.logits[own]});
    if (measures_confidence) exponentials += std::exp(row.gap(k));
  }
  LOCKSTEP_HOST_DEVICE void merge(const PredictionSums& other) {
    label.merge(other.label);
    exponentials += other.exponentials;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Prediction result(std::int64_t classes) const {
    // NaN is not at least 1.
    const float confidence = exponentials >= 1 ? static_cast<float>(1 / exponentials) : 0;
    return {.rank = label.result(classes), .confidence = confidence};
  }
};

}  // namespace lockstep
