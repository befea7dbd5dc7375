#pragma once

#include "lockstep/core/host_device.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// A class of a sample, and the network's output for it.
struct ClassLogit {
  std::int64_t index;
  float logit;
};

/// Counts the classes that come before a label when they are sorted by logit, the largest first and
/// equal ones in the order of their indices, as argmax and a stable sort do. The count is the
/// label's rank; a sample is a top-k hit if it is below k. Counts of parts of a row can be merged
/// in any order. Without initial values, as shared memory needs it.
struct LabelRank {
  std::int32_t before;
  std::int32_t nans;

  LOCKSTEP_HOST_DEVICE void add(const ClassLogit& of, const ClassLogit& label) {
    const bool is_tie = of.logit == label.logit;  // also of 0 and -0
    before += of.logit > label.logit || (is_tie && of.index < label.index) ? 1 : 0;
    nans += of.logit != of.logit ? 1 : 0;
  }
  LOCKSTEP_HOST_DEVICE void merge(const LabelRank& other) {
    before += other.before;
    nans += other.nans;
  }
  /// The rank; no_hit() if a logit is NaN.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int32_t result(std::int64_t classes) const {
    return nans > 0 ? no_hit(classes) : before;
  }
  /// A rank that is neither a top-1 nor a top-5 hit.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static std::int32_t no_hit(std::int64_t classes) {
    return static_cast<std::int32_t>(classes < 5 ? 5 : classes);
  }
};

/// The rank of a label, below the number of logits, among a sample's.
[[nodiscard]] inline std::int32_t label_rank(std::span<const float> logits, std::int64_t label) {
  const ClassLogit own{.index = label, .logit = logits[static_cast<std::size_t>(label)]};
  LabelRank rank{.before = 0, .nans = 0};
  for (std::size_t k = 0; k < logits.size(); ++k) {
    rank.add({.index = static_cast<std::int64_t>(k), .logit = logits[k]}, own);
  }
  return rank.result(static_cast<std::int64_t>(logits.size()));
}

}  // namespace lockstep
