#include "recorded_steps.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::gpu {
namespace {

/// More than a run needs: one each for its first, inner and last micro-steps and for partial
/// batches. Then the oldest is dropped.
constexpr std::size_t max_recordings = 6;

}  // namespace

void RecordedSteps::run_singly(const LaunchContext& context, UnitExchange* exchange,
                               const StepTiming& timing) {
  for (const Step& step : steps_) {
    if (!step.runs(context.reduces)) continue;
    timing.before_step(step.waits_for_ranks());
    timing.timeline != nullptr ? timing.timeline->run(step, context) : step.run(context);
    if (exchange != nullptr) exchange->progress();
  }
}

std::vector<RecordedSteps::Part> RecordedSteps::record(const LaunchContext& context) {
  std::vector<Part> parts;
  std::vector<const Step*> recorded;
  const auto end_recording = [&] {
    if (recorded.empty()) return;
    parts.push_back({.replay = device_.record([steps = std::exchange(recorded, {}), context] {
                       for (const Step* step : steps) step->run(context);
                     }),
                     .step = nullptr});
  };
  for (const Step& step : steps_) {
    if (!step.runs(context.reduces)) continue;
    if (!step.collective) {
      recorded.push_back(&step);
      continue;
    }
    end_recording();
    parts.push_back({.replay = nullptr, .step = &step});
  }
  end_recording();
  return parts;
}

void RecordedSteps::run(const LaunchContext& context, UnitExchange* exchange,
                        const StepTiming& timing) {
  if (!records_ || timing.timeline != nullptr) return run_singly(context, exchange, timing);
  const Arguments arguments{.base = context.base,
                            .targets = context.targets,
                            .dropped = context.dropped,
                            .samples = context.samples,
                            .accumulate = context.accumulate,
                            .reduces = context.reduces};
  const auto recording = std::ranges::find(recordings_, arguments, &Recording::arguments);
  if (recording == recordings_.end()) {
    if (recordings_.size() == max_recordings) recordings_.erase(recordings_.begin());
    recordings_.push_back({.arguments = arguments, .parts = {}});
    return run_singly(context, exchange, timing);
  }
  if (recording->parts.empty()) recording->parts = record(context);
  for (const Part& part : recording->parts) {
    timing.before_step(part.step != nullptr && part.step->waits_for_ranks());
    part.step != nullptr ? part.step->run(context) : part.replay->queue();
    if (exchange != nullptr) exchange->progress();
  }
}

}  // namespace lockstep::gpu
