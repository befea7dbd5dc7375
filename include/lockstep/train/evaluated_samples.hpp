#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// Consecutive samples of a split, and the network's output for them.
struct EvaluatedSamples {
  std::int64_t first = 0;                ///< index in the split
  std::span<const std::int32_t> labels;  ///< (N,)
  std::span<const float> logits;         ///< (N, classes)
};

}  // namespace lockstep
