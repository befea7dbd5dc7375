#pragma once

#include "lockstep/data/dataset.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/hdf5_writer.hpp"
#include "lockstep/run/evaluation_result.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/trainer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Adds the samples to the results of their classes, and the hits as the metric top-1 counts
/// them, by LabelRank.
void add_to_classes(const EvaluatedSamples& samples, std::span<ClassResult> classes);

/// The class that a confusion matrix counts: of the largest logit, the first if several are, as
/// LabelRank; so it is the label for top-1 hits alone. A row with NaN is no hit: then the class is
/// that of the first NaN, or else of the largest logit, among the other classes.
[[nodiscard]] std::int32_t predicted_class(std::span<const float> logits, std::int32_t label);

/// A confusion matrix as CSV (RFC 4180, with \n): a row for each true class and a column for each
/// predicted class, both titled. Keeps 8 bytes per sample, not the matrix: of 21,841 classes it
/// would take 3.8 GB.
class ConfusionFile final {
 public:
  /// Starts a temporary file. Error(cannot_write), as publish().
  ConfusionFile(std::string path, std::vector<std::string> classes);
  void add(const EvaluatedSamples& samples);
  /// Writes the matrix; `path` is then the whole file.
  void publish();

 private:
  std::string path_;
  std::vector<std::string> classes_;
  std::vector<std::pair<std::int32_t, std::int32_t>> samples_;  ///< true and predicted class
  TemporaryFile temporary_;
};

/// The logits and labels of a split as HDF5: docs/file-formats.md. The same samples give the same
/// bytes in whatever pieces and order they are added.
class PredictionFile final {
 public:
  /// Starts a temporary file. Error(cannot_write), as add() and publish().
  PredictionFile(const EvaluationRequest& request, const Graph& graph, const DatasetInfo& data);
  void add(const EvaluatedSamples& samples);
  /// Call after all samples were added; the path is then the whole file.
  void publish();

 private:
  std::string path_;
  TemporaryFile temporary_;
  h5::File file_;
  h5::Dataset logits_;
  h5::Dataset labels_;
  h5::Dataset indices_;
};

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
