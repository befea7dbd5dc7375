#pragma once

#include "lockstep/io/atomic_file.hpp"
#include "lockstep/train/evaluated_samples.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

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

}  // namespace lockstep
