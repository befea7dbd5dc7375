#include "evaluation_record.hpp"

#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/core/csv.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/label_rank.hpp"
#include "lockstep/core/output_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <numeric>

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

/// Names the path in errors, which HDF5 gives for the temporary file.
template <typename Work>
void writing(const std::string& path, Work work) {
  try {
    work();
  } catch (const Error& error) {
    fail(error.status(), "predictions {} were not saved: {}", path, error.what());
  }
}

void write_attributes(const h5::File& file, const std::string& checkpoint,
                      const EvaluationRequest& request, const Graph& graph,
                      const DatasetInfo& data) {
  h5::write_string(file, "format", "lockstep-predictions");
  h5::write_number<std::int64_t>(file, "version", 1);
  h5::write_string(file, "checkpoint", checkpoint);
  h5::write_string(
      file, "weights",
      to_string(request.ema.value_or(false) ? StoredModel::ema : StoredModel::current));
  h5::write_string(file, "model", graph.name());
  h5::write_string(file, "split", data.split);
  h5::write_number(file, "classes", graph.outputs());
  if (!data.class_names.empty()) h5::write_strings(file, "class_names", data.class_names);
  h5::write_number(file, "data_identity", data.identity);
}

}  // namespace

void add_to_classes(const EvaluatedSamples& samples, std::span<ClassResult> classes) {
  for (std::size_t n = 0; n < samples.labels.size(); ++n) {
    const auto label = static_cast<std::size_t>(samples.labels[n]);
    const auto row = samples.logits.subspan(n * classes.size(), classes.size());
    ++classes[label].samples;
    classes[label].top1 += label_rank(row, samples.labels[n]) < 1 ? 1 : 0;
  }
}

std::int32_t predicted_class(std::span<const float> logits, std::int32_t label) {
  const bool is_nan = std::ranges::any_of(logits, [](float logit) { return std::isnan(logit); });
  std::optional<std::size_t> best;
  for (std::size_t k = 0; k < logits.size(); ++k) {
    if (is_nan && static_cast<std::int32_t>(k) == label) continue;
    const bool is_first_nan = std::isnan(logits[k]) && best && !std::isnan(logits[*best]);
    if (!best || is_first_nan || logits[k] > logits[*best]) best = k;
  }
  return static_cast<std::int32_t>(best.value_or(0));
}

ConfusionFile::ConfusionFile(std::string path, std::vector<std::string> classes)
    : path_(std::move(path)), classes_(std::move(classes)), temporary_(path_) {}

void ConfusionFile::add(const EvaluatedSamples& samples) {
  for (std::size_t n = 0; n < samples.labels.size(); ++n) {
    const auto row = samples.logits.subspan(n * classes_.size(), classes_.size());
    samples_.emplace_back(samples.labels[n], predicted_class(row, samples.labels[n]));
  }
}

void ConfusionFile::publish() {
  std::ranges::transform(classes_, classes_.begin(), csv_field);
  std::ranges::sort(samples_);
  temporary_.append(fmt::format("true class,{}\n", fmt::join(classes_, ",")));
  auto sample = samples_.begin();
  for (std::size_t label = 0; label < classes_.size(); ++label) {
    std::vector<std::int64_t> row(classes_.size());
    for (; sample != samples_.end() && static_cast<std::size_t>(sample->first) == label; ++sample) {
      ++row[static_cast<std::size_t>(sample->second)];
    }
    temporary_.append(fmt::format("{},{}\n", classes_[label], fmt::join(row, ",")));
  }
  temporary_.flush();
  temporary_.publish();
}

PredictionFile::PredictionFile(const EvaluationRequest& request, const Graph& graph,
                               const DatasetInfo& data)
    : path_(request.predictions), temporary_(path_) {
  const std::string checkpoint = file_name(request.checkpoint);
  writing(path_, [&] {
    file_ = h5::create_file(temporary_.path(), temporary_.file());
    write_attributes(file_, checkpoint, request, graph, data);
    const std::array dims{static_cast<std::uint64_t>(data.samples),
                          static_cast<std::uint64_t>(graph.outputs())};
    logits_ = h5::create_dataset<float>(file_, "logits", dims);
    labels_ = h5::create_dataset<std::int64_t>(file_, "labels", std::span(dims).first(1));
    indices_ = h5::create_dataset<std::int64_t>(file_, "sample", std::span(dims).first(1));
  });
}

void PredictionFile::add(const EvaluatedSamples& samples) {
  writing(path_, [&] {
    const auto first = static_cast<std::uint64_t>(samples.first);
    const std::uint64_t count = samples.labels.size();
    std::vector<std::int64_t> values(samples.labels.begin(), samples.labels.end());
    h5::write_rows<float>(logits_, first, count, samples.logits);
    h5::write_rows<std::int64_t>(labels_, first, count, values);
    std::iota(values.begin(), values.end(), samples.first);
    h5::write_rows<std::int64_t>(indices_, first, count, values);
  });
}

void PredictionFile::publish() {
  writing(path_, [&] {
    logits_ = {};
    labels_ = {};
    indices_ = {};
    h5::close_written(std::move(file_));
    temporary_.flush();
    temporary_.publish();
  });
}

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
    : classes_(static_cast<std::size_t>(graph.outputs())) {
  for (std::size_t i = 0; i < data.class_names.size(); ++i) {
    classes_[i].name = data.class_names[i];
  }
  if (!request.confusion.empty()) confusion_.emplace(request.confusion, titles(classes_));
  if (!request.predictions.empty()) predictions_.emplace(request, graph, data);
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
