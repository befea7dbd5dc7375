#include "lockstep/parallel/tail_bucket.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace lockstep {
namespace {

// Indices in the sums, and their number. The loss is the first, and metrics follow.
constexpr std::size_t first_metric = 1;
constexpr std::size_t samples = first_metric + training_metrics;
constexpr std::size_t not_finite = samples + 1;
constexpr std::size_t stop_requests = samples + 2;
constexpr std::size_t save_requests = samples + 3;
constexpr std::size_t failed = samples + 4;
constexpr std::size_t sums_size = samples + 5;

}  // namespace

TailBucket::TailBucket(const Graph& graph) {
  for (const RunningStatistic& statistic : graph.statistics()) {
    const std::size_t end = statistics_ + static_cast<std::size_t>(statistic.channels);
    // Values of fixed statistics stay zero.
    if (!statistic.is_fixed) {
      ranges_.push_back({.begin = statistics_, .end = end, .momentum = statistic.momentum});
    }
    statistics_ = end;
  }
}

std::size_t TailBucket::size() const noexcept {
  return statistics_ + sums_size;
}

std::size_t TailBucket::samples_at() const noexcept {
  return statistics_ + samples;
}
std::size_t TailBucket::not_finite_at() const noexcept {
  return statistics_ + not_finite;
}

void TailBucket::clear(std::span<float> tail) const noexcept {
  std::fill(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(size()), 0.0F);
}

void TailBucket::fold(std::span<float> tail, std::span<const float> statistics,
                      double weight) const noexcept {
  assert(statistics.size() == statistics_);
  for (const Range& range : ranges_) {
    const auto keep = static_cast<float>(1.0 - range.momentum);
    const auto take = static_cast<float>(range.momentum * weight);
    for (std::size_t i = range.begin; i < range.end; ++i) {
      tail[i] = keep * tail[i] + take * statistics[i];
    }
  }
}

void TailBucket::write_sums(std::span<float> tail, const StepSums& sums) const noexcept {
  const auto values = tail.subspan(statistics_, sums_size);
  values[0] = static_cast<float>(sums.loss);
  for (std::size_t i = 0; i < training_metrics; ++i) {
    values[first_metric + i] = static_cast<float>(sums.metrics[i]);
  }
  values[samples] = static_cast<float>(sums.samples);
  values[not_finite] = static_cast<float>(sums.not_finite);
  values[stop_requests] = static_cast<float>(sums.stop_requests);
  values[save_requests] = static_cast<float>(sums.save_requests);
  values[failed] = static_cast<float>(sums.failed);
}

StepSums TailBucket::read_sums(std::span<const float> tail) const noexcept {
  const auto values = tail.subspan(statistics_, sums_size);
  const auto count = [&](std::size_t i) { return static_cast<int>(std::lround(values[i])); };
  StepSums sums{.loss = values[0],
                .samples = values[samples],
                .not_finite = count(not_finite),
                .stop_requests = count(stop_requests),
                .save_requests = count(save_requests),
                .failed = count(failed)};
  for (std::size_t i = 0; i < training_metrics; ++i) sums.metrics[i] = values[first_metric + i];
  return sums;
}

void TailBucket::update_running(std::span<const float> tail, int micro_steps,
                                std::span<float> running) const noexcept {
  assert(running.size() == statistics_);
  for (const Range& range : ranges_) {
    const auto keep = static_cast<float>(std::pow(1.0 - range.momentum, micro_steps));
    for (std::size_t i = range.begin; i < range.end; ++i) running[i] = keep * running[i] + tail[i];
  }
}

}  // namespace lockstep
