#pragma once

#include "lockstep/core/label_rank.hpp"
#include "lockstep/core/metrics.hpp"
#include "losses/loss_row.hpp"

namespace lockstep {

/// Sums over the classes of a sample, from which its Prediction follows; they begin as zeros.
/// Without initial values, as shared memory needs it.
struct PredictionSums {
  LabelRank label;

  LOCKSTEP_HOST_DEVICE void add(const LossRow& row, std::int64_t k) {
    const std::int32_t own = row.labels.heavier();
    label.add({.index = k, .logit = row.logits[k]}, {.index = own, .logit = row.logits[own]});
  }
  LOCKSTEP_HOST_DEVICE void merge(const PredictionSums& other) { label.merge(other.label); }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Prediction result(std::int64_t classes) const {
    return {.rank = label.result(classes)};
  }
};

}  // namespace lockstep
