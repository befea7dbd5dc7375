#include "lockstep/health/step_times.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

/// The lower median of an even number of values.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto median = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, median);
  return *median;
}

template <typename Range, typename Projection>
double median_of(const Range& range, Projection&& projection) {
  std::vector<double> values;
  values.reserve(range.size());
  for (const auto& each : range) values.push_back(projection(each));
  return median(std::move(values));
}

double ratio(double value, double to) {
  return to > 0 ? value / to : 0;
}

}  // namespace

std::string to_string(const RankTimes& times) {
  const auto text = [](const char* name, const TimeSummary& summary) {
    return fmt::format("{} {:.1f}/{:.1f} ms", name, 1e3 * summary.p50, 1e3 * summary.max);
  };
  return fmt::format("a step's p50/max: {}, {}, {}{}", text("data", times.data),
                     text("compute", times.compute), text("communication", times.communication),
                     times.gpu.max > 0 ? ", " + text("GPU", times.gpu) : "");
}

void StepTimes::add(const PhaseTimes& times) {
  const Sample sample{.data = times.data,
                      .compute = times.forward + times.backward + times.optimizer,
                      .communication = times.communication,
                      .gpu = times.gpu};
  longest_ = {.data = std::max(longest_.data, sample.data),
              .compute = std::max(longest_.compute, sample.compute),
              .communication = std::max(longest_.communication, sample.communication),
              .gpu = std::max(longest_.gpu, sample.gpu)};
  if (seen_++ % stride_ != 0) return;
  if (samples_.size() == most) {
    for (std::size_t i = 0; i < most / 2; ++i) samples_[i] = samples_[2 * i];
    samples_.resize(most / 2);
    stride_ *= 2;
  }
  samples_.push_back(sample);
}

RankTimes StepTimes::summary() const {
  const auto own = [](const Sample& sample) { return sample.data + sample.compute; };
  const auto gpu = [](const Sample& sample) { return sample.gpu; };
  const std::span<const Sample> all(samples_);
  const std::span<const Sample> first = all.first(all.size() / 2);
  const std::span<const Sample> second = all.subspan(all.size() / 2);
  return {
      .data = {.p50 = median_of(all, [](const Sample& s) { return s.data; }), .max = longest_.data},
      .compute = {.p50 = median_of(all, [](const Sample& s) { return s.compute; }),
                  .max = longest_.compute},
      .communication = {.p50 = median_of(all, [](const Sample& s) { return s.communication; }),
                        .max = longest_.communication},
      .gpu = {.p50 = median_of(all, gpu), .max = longest_.gpu},
      .own_first = median_of(first, own),
      .own_second = median_of(second, own),
      .gpu_first = median_of(first, gpu),
      .gpu_second = median_of(second, gpu),
      .steps = static_cast<double>(seen_)};
}

void StepTimes::clear() noexcept {
  samples_.clear();
  longest_ = {};
  stride_ = 1;
  seen_ = 0;
}

std::vector<Straggler> find_stragglers(std::span<const RankTimes> ranks, double factor) {
  std::vector<Straggler> found;
  if (factor <= 0 || ranks.empty() || ranks.front().steps < fewest_steps_to_judge) return found;
  const auto median_rank = [&](auto&& projection) { return median_of(ranks, projection); };
  const double own_first = median_rank([](const RankTimes& r) { return r.own_first; });
  const double own_second = median_rank([](const RankTimes& r) { return r.own_second; });
  const double gpu_first = median_rank([](const RankTimes& r) { return r.gpu_first; });
  const double gpu_second = median_rank([](const RankTimes& r) { return r.gpu_second; });
  const double data = median_rank([](const RankTimes& r) { return r.data.p50; });
  const double compute = median_rank([](const RankTimes& r) { return r.compute.p50; });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankTimes& times = ranks[rank];
    const double own =
        std::min(ratio(times.own_first, own_first), ratio(times.own_second, own_second));
    const double gpu =
        std::min(ratio(times.gpu_first, gpu_first), ratio(times.gpu_second, gpu_second));
    const bool has_slow_gpu = gpu > factor;
    if (own <= factor && !has_slow_gpu) continue;
    found.push_back({.rank = static_cast<int>(rank),
                     .by = has_slow_gpu ? Straggler::By::gpu : Straggler::By::own,
                     .factor = has_slow_gpu ? gpu : own,
                     .data = ratio(times.data.p50, data),
                     .compute = ratio(times.compute.p50, compute)});
  }
  return found;
}

}  // namespace lockstep
