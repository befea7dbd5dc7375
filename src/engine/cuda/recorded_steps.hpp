#pragma once

#include "device_timeline.hpp"
#include "lockstep/engine/engine.hpp"
#include "program_builder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::cuda {

/// Queues lists of steps: the first time one by one, so that libraries may load what they need, and
/// then, with the same arguments, as recordings that one call queues.
class RecordedSteps final {
 public:
  /// Without `records`, always one by one. `steps` outlive it and stay as they are.
  RecordedSteps(Device& device, std::span<const Step> steps, bool records)
      : device_(device), steps_(steps), records_(records) {}

  /// `observer` is told after each step, or, of a recording, where its boundaries are reached and
  /// at the end; null: nobody is.
  /// `timeline`: queued one by one, each step timed; null: not timed.
  void run(const Frame& frame, BackwardObserver* observer, DeviceTimeline* timeline = nullptr);

 private:
  struct Part {
    std::unique_ptr<Replay> replay;  ///< null: a step in which ranks meet
    const Step* step;
    std::size_t filled;
  };
  /// Of one set of arguments, all that a step may see.
  struct Recording {
    const std::byte* base;
    std::int64_t samples;
    float loss_scale;
    bool accumulate;
    std::vector<std::size_t> boundaries;
    std::vector<Part> parts;  ///< empty: it ran once, and not by a recording
    [[nodiscard]] bool fits(const Frame& frame, std::span<const std::size_t> asked) const noexcept;
  };
  [[nodiscard]] Recording* find(const Frame& frame, std::span<const std::size_t> boundaries);
  void run_singly(const Frame& frame, BackwardObserver* observer, DeviceTimeline* timeline);
  [[nodiscard]] std::vector<Part> record(const Frame& frame,
                                         std::span<const std::size_t> boundaries);

  Device& device_;
  std::span<const Step> steps_;
  bool records_;
  std::vector<Recording> recordings_;
};

}  // namespace lockstep::cuda
