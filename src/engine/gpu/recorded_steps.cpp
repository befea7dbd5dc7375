#include "recorded_steps.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::gpu {
namespace {

/// More than a run needs: one each for its first, inner and last micro-steps and for partial
/// batches. Then the oldest is dropped.
constexpr std::size_t max_recordings = 6;

}  // namespace

void RecordedSteps::run_singly(const LaunchContext& context, BackwardObserver* observer,
                               const StepTiming& timing) {
  for (const Step& step : steps_) {
    timing.before_step(step.collective);
    timing.timeline != nullptr ? timing.timeline->run(step, context) : step.run(context);
    if (observer != nullptr) observer->gradients_ready(step.filled);
  }
}

std::vector<RecordedSteps::Part> RecordedSteps::record(const LaunchContext& context,
                                                       std::span<const std::size_t> boundaries) {
  std::vector<Part> parts;
  auto boundary = boundaries.begin();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::size_t filled = steps_[i].filled;
    const bool collective = steps_[i].collective;
    const bool reached = boundary != boundaries.end() && filled >= *boundary;
    const bool last = i + 1 == steps_.size() || steps_[i + 1].collective;
    if (!collective && !reached && !last) continue;
    while (boundary != boundaries.end() && filled >= *boundary) ++boundary;
    if (collective) {
      parts.push_back({.replay = nullptr, .step = &steps_[i], .filled = filled});
    } else {
      const std::span<const Step> steps = steps_.subspan(begin, i + 1 - begin);
      parts.push_back({.replay = device_.record([steps, context] {
                         for (const Step& step : steps) step.run(context);
                       }),
                       .step = nullptr,
                       .filled = filled});
    }
    begin = i + 1;
  }
  return parts;
}

void RecordedSteps::run(const LaunchContext& context, BackwardObserver* observer,
                        const StepTiming& timing) {
  if (!records_ || timing.timeline != nullptr) return run_singly(context, observer, timing);
  const auto boundaries =
      observer == nullptr ? std::span<const std::size_t>{} : observer->boundaries();
  Arguments arguments{.base = context.base,
                      .mixes = context.labels.mixes,
                      .dropped = context.labels.dropped.masks,
                      .samples = context.samples,
                      .accumulate = context.accumulate,
                      .boundaries = {boundaries.begin(), boundaries.end()}};
  const auto recording = std::ranges::find(recordings_, arguments, &Recording::arguments);
  if (recording == recordings_.end()) {
    if (recordings_.size() == max_recordings) recordings_.erase(recordings_.begin());
    recordings_.push_back({.arguments = std::move(arguments), .parts = {}});
    return run_singly(context, observer, timing);
  }
  if (recording->parts.empty()) recording->parts = record(context, boundaries);
  for (const Part& part : recording->parts) {
    timing.before_step(part.step != nullptr);
    part.step != nullptr ? part.step->run(context) : part.replay->queue();
    if (observer != nullptr) observer->gradients_ready(part.filled);
  }
}

}  // namespace lockstep::gpu
