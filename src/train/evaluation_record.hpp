#pragma once

#include "confusion_file.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/train/evaluated_samples.hpp"
#include "lockstep/train/trainer.hpp"
#include "prediction_file.hpp"

#include <optional>
#include <vector>

namespace lockstep {

/// Whether results of single samples were requested.
[[nodiscard]] bool records_samples(const EvaluationRequest& request) noexcept;

/// Error(usage) if --confusion or --predictions would replace a file, or are the same; a path that
/// is not a file is Error(cannot_write).
void check_output_paths(const EvaluationRequest& request);

/// Rank 0's results per class, confusion matrix and predictions, as requested.
class EvaluationRecord final {
 public:
  /// Starts the files; `request.ema` says which weights are evaluated. Error(cannot_write), as
  /// add() and finish().
  EvaluationRecord(const EvaluationRequest& request, const Graph& graph, const DatasetInfo& data);
  void add(const EvaluatedSamples& samples);
  /// Publishes the files; call after all samples were added. Returns the results per class.
  [[nodiscard]] std::vector<ClassResult> finish();

 private:
  std::vector<ClassResult> classes_;
  std::optional<ConfusionFile> confusion_;
  std::optional<PredictionFile> predictions_;
};

}  // namespace lockstep
