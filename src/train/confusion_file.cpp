#include "confusion_file.hpp"

#include "lockstep/core/csv.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace lockstep {

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

}  // namespace lockstep
