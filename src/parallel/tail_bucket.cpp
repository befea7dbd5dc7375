#include "lockstep/parallel/tail_bucket.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace lockstep {
namespace {

// Indices in StepSums, and its number of fields.
constexpr std::size_t samples = 3;
constexpr std::size_t not_finite = 4;
constexpr std::size_t sums_size = 8;

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
  const float values[sums_size] = {
      static_cast<float>(sums.loss),          static_cast<float>(sums.top1),
      static_cast<float>(sums.top5),          static_cast<float>(sums.samples),
      static_cast<float>(sums.not_finite),    static_cast<float>(sums.stop_requests),
      static_cast<float>(sums.save_requests), static_cast<float>(sums.failed)};
  std::copy(std::begin(values), std::end(values),
            tail.begin() + static_cast<std::ptrdiff_t>(statistics_));
}

StepSums TailBucket::read_sums(std::span<const float> tail) const noexcept {
  const auto value = [&](std::size_t i) { return tail[statistics_ + i]; };
  const auto count = [&](std::size_t i) { return static_cast<int>(std::lround(value(i))); };
  return {.loss = value(0),
          .top1 = value(1),
          .top5 = value(2),
          .samples = value(samples),
          .not_finite = count(not_finite),
          .stop_requests = count(5),
          .save_requests = count(6),
          .failed = count(7)};
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
