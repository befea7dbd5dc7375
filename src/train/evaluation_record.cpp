#include "evaluation_record.hpp"

#include "class_results.hpp"
#include "lockstep/core/error.hpp"

#include <cstddef>
#include <filesystem>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void check_output_path(const char* option, const std::string& path, bool overwrite) {
  std::error_code ignored;
  const fs::file_status found = fs::status(path, ignored);
  if (path.empty() || !fs::exists(found)) return;
  if (!fs::is_regular_file(found)) {
    fail(ExitStatus::cannot_write, "cannot write {} (it is not a file); give --{} another path",
         path, option);
  }
  if (!overwrite) {
    fail(ExitStatus::usage,
         "--{} {} exists already (it would be replaced); give another path, or --overwrite", option,
         path);
  }
}

fs::path normal(const std::string& path) {
  return fs::absolute(path).lexically_normal();
}

/// Names of all classes of the network; its label for a class without a name.
std::vector<std::string> titles(const std::vector<ClassResult>& classes) {
  std::vector<std::string> result;
  result.reserve(classes.size());
  for (const ClassResult& of : classes) {
    result.push_back(of.name.empty() ? std::to_string(result.size()) : of.name);
  }
  return result;
}

/// The file that a link such as checkpoints/best leads to.
std::string file_name(const std::string& path) {
  std::error_code ignored;
  const fs::path file = fs::canonical(path, ignored);
  return (file.empty() ? fs::path(path) : file).filename().string();
}

}  // namespace

bool records_samples(const EvaluationRequest& request) noexcept {
  return request.per_class || !request.confusion.empty() || !request.predictions.empty();
}

void check_output_paths(const EvaluationRequest& request) {
  check_output_path("confusion", request.confusion, request.overwrite);
  check_output_path("predictions", request.predictions, request.overwrite);
  if (request.confusion.empty() || request.predictions.empty()) return;
  if (normal(request.confusion) == normal(request.predictions)) {
    fail(ExitStatus::usage,
         "--confusion and --predictions are both {} (one would replace the other); give two paths",
         request.predictions);
  }
}

EvaluationRecord::EvaluationRecord(const EvaluationRequest& request, const Graph& graph,
                                   const DatasetInfo& data)
    : classes_(static_cast<std::size_t>(graph.classes())) {
  for (std::size_t i = 0; i < data.class_names.size(); ++i) {
    classes_[i].name = data.class_names[i];
  }
  if (!request.confusion.empty()) confusion_.emplace(request.confusion, titles(classes_));
  if (request.predictions.empty()) return;
  predictions_.emplace(request.predictions,
                       PredictionSource{.checkpoint = file_name(request.checkpoint),
                                        .model = graph.name(),
                                        .split = data.split,
                                        .samples = data.samples,
                                        .classes = graph.classes(),
                                        .class_names = data.class_names,
                                        .data_identity = data.identity});
}

void EvaluationRecord::add(const EvaluatedSamples& samples) {
  add_to_classes(samples, classes_);
  if (confusion_) confusion_->add(samples);
  if (predictions_) predictions_->add(samples);
}

std::vector<ClassResult> EvaluationRecord::finish() {
  if (confusion_) confusion_->publish();
  if (predictions_) predictions_->publish();
  return std::move(classes_);
}

}  // namespace lockstep
