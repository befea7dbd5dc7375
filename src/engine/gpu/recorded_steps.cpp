#include "recorded_steps.hpp"

#include <algorithm>

namespace lockstep::cuda {
namespace {

/// More than a run needs: first, middle and last micro-steps, and partial batches. When the loss
/// scale changes, the oldest is dropped.
constexpr std::size_t most_recordings = 6;

}  // namespace

bool RecordedSteps::Recording::fits(const Frame& frame,
                                    std::span<const std::size_t> asked) const noexcept {
  return base == frame.base && samples == frame.samples && loss_scale == frame.loss_scale &&
         accumulate == frame.accumulate && std::ranges::equal(boundaries, asked);
}

RecordedSteps::Recording* RecordedSteps::find(const Frame& frame,
                                              std::span<const std::size_t> boundaries) {
  const auto found = std::ranges::find_if(
      recordings_, [&](const Recording& each) { return each.fits(frame, boundaries); });
  return found == recordings_.end() ? nullptr : &*found;
}

void RecordedSteps::run_singly(const Frame& frame, BackwardObserver* observer,
                               DeviceTimeline* timeline) {
  for (const Step& step : steps_) {
    timeline != nullptr ? timeline->run(step, frame) : step.run(frame);
    if (observer != nullptr) observer->gradients_ready(step.filled);
  }
}

std::vector<RecordedSteps::Part> RecordedSteps::record(const Frame& frame,
                                                       std::span<const std::size_t> boundaries) {
  std::vector<Part> parts;
  auto boundary = boundaries.begin();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::size_t filled = steps_[i].filled;
    const bool meets = steps_[i].meets;
    const bool reached = boundary != boundaries.end() && filled >= *boundary;
    const bool last = i + 1 == steps_.size() || steps_[i + 1].meets;
    if (!meets && !reached && !last) continue;
    while (boundary != boundaries.end() && filled >= *boundary) ++boundary;
    if (meets) {
      parts.push_back({.replay = nullptr, .step = &steps_[i], .filled = filled});
    } else {
      const std::span<const Step> steps = steps_.subspan(begin, i + 1 - begin);
      parts.push_back({.replay = device_.record([steps, frame] {
                         for (const Step& step : steps) step.run(frame);
                       }),
                       .step = nullptr,
                       .filled = filled});
    }
    begin = i + 1;
  }
  return parts;
}

void RecordedSteps::run(const Frame& frame, BackwardObserver* observer, DeviceTimeline* timeline) {
  if (!records_ || timeline != nullptr) return run_singly(frame, observer, timeline);
  const auto boundaries =
      observer == nullptr ? std::span<const std::size_t>{} : observer->boundaries();
  Recording* recording = find(frame, boundaries);
  if (recording == nullptr) {
    if (recordings_.size() == most_recordings) recordings_.erase(recordings_.begin());
    recordings_.push_back({.base = frame.base,
                           .samples = frame.samples,
                           .loss_scale = frame.loss_scale,
                           .accumulate = frame.accumulate,
                           .boundaries = {boundaries.begin(), boundaries.end()},
                           .parts = {}});
    return run_singly(frame, observer, nullptr);
  }
  if (recording->parts.empty()) recording->parts = record(frame, boundaries);
  for (const Part& part : recording->parts) {
    part.step != nullptr ? part.step->run(frame) : part.replay->queue();
    if (observer != nullptr) observer->gradients_ready(part.filled);
  }
}

}  // namespace lockstep::cuda
