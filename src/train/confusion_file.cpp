#include "confusion_file.hpp"

#include "lockstep/core/csv.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace lockstep {

std::int64_t predicted_class(std::span<const float> logits) {
  return std::ranges::max_element(logits,
                                  [](float left, float right) {
                                    return left < right || (std::isnan(right) && !std::isnan(left));
                                  }) -
         logits.begin();
}

ConfusionFile::ConfusionFile(std::string path, std::vector<std::string> classes)
    : path_(std::move(path)),
      classes_(std::move(classes)),
      temporary_(path_),
      file_(temporary_.path(), std::ios::binary) {
  if (file_) return;
  fail(ExitStatus::cannot_write,
       "cannot create {} ({}); check that the directory exists and is writable", path_,
       std::strerror(errno));
}

void ConfusionFile::add(const EvaluatedSamples& samples) {
  for (std::size_t n = 0; n < samples.labels.size(); ++n) {
    const auto row = samples.logits.subspan(n * classes_.size(), classes_.size());
    samples_.emplace_back(samples.labels[n], static_cast<std::int32_t>(predicted_class(row)));
  }
}

void ConfusionFile::publish() {
  std::ranges::transform(classes_, classes_.begin(), csv_field);
  std::ranges::sort(samples_);
  file_ << fmt::format("true class,{}\n", fmt::join(classes_, ","));
  auto sample = samples_.begin();
  for (std::size_t label = 0; label < classes_.size(); ++label) {
    std::vector<std::int64_t> row(classes_.size());
    for (; sample != samples_.end() && static_cast<std::size_t>(sample->first) == label; ++sample) {
      ++row[static_cast<std::size_t>(sample->second)];
    }
    file_ << fmt::format("{},{}\n", classes_[label], fmt::join(row, ","));
  }
  file_.close();
  if (!file_) {
    fail(ExitStatus::cannot_write, "cannot write {} (the disk may be full); make room", path_);
  }
  temporary_.flush();
  temporary_.publish();
}

}  // namespace lockstep
