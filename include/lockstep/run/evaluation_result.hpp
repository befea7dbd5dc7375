#pragma once

#include "lockstep/core/metrics.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct ClassResult {
  std::string name;  ///< empty: unknown
  std::int64_t samples = 0;
  std::int64_t top1 = 0;  ///< hits, as LabelRank
};

/// Means over exactly the samples of a split.
struct EvaluationResult {
  std::int64_t samples = 0;
  double loss = 0;
  MetricValues metrics = {};
  double seconds = 0;
  std::vector<ClassResult> classes = {};  ///< by label, on rank 0, if requested
  bool ema = false;                       ///< of a checkpoint's average, on rank 0
  std::string weights_text = {};          ///< chosen_model_text(), on rank 0
};

/// An evaluation during training.
struct Evaluations {
  EvaluationResult weights = {};
  std::optional<EvaluationResult> ema = {};  ///< of their moving average, if one is kept
  /// The result that chooses the best checkpoint.
  [[nodiscard]] const EvaluationResult& best() const noexcept { return ema ? *ema : weights; }
};

}  // namespace lockstep
