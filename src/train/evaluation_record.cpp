#include "evaluation_record.hpp"

#include "class_results.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/output_file.hpp"

#include <cstddef>
#include <filesystem>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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
  const fs::path named = follow_file_link(path).text();
  const fs::path file = fs::canonical(named, ignored);
  return (file.empty() ? named : file).filename().string();
}

}  // namespace

bool records_samples(const EvaluationRequest& request) noexcept {
  return request.per_class || !request.confusion.empty() || !request.predictions.empty();
}

void check_output_paths(const EvaluationRequest& request) {
  const Existing existing = request.overwrite ? Existing::replace : Existing::refuse;
  for (const auto& [option, path] : {std::pair("--confusion", request.confusion),
                                     std::pair("--predictions", request.predictions)}) {
    if (path.empty()) continue;
    for (const std::string& input :
         {request.checkpoint, follow_file_link(request.checkpoint).text()}) {
      require_other_than(option, path, "the checkpoint", input);
    }
    if (std::error_code ignored; fs::exists(path, ignored)) {
      for (const std::string& name : names_in(request.data)) {
        require_other_than(option, path, "a file of --data", request.data + "/" + name);
      }
    }
    require_output(option, path, existing);
  }
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
  predictions_.emplace(
      request.predictions,
      PredictionSource{.checkpoint = file_name(request.checkpoint),
                       .weights = to_string(request.ema.value_or(false) ? StoredModel::ema
                                                                        : StoredModel::current),
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
