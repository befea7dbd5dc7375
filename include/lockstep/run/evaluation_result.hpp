#pragma once

#include <cstdint>

namespace lockstep {

/// Means over exactly the samples of a split; top1 and top5 as fractions.
struct EvaluationResult {
  std::int64_t samples = 0;
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
  double seconds = 0;
};

}  // namespace lockstep
