#pragma once

#include "device_stopwatch.hpp"
#include "device_timeline.hpp"
#include "lockstep/engine/program.hpp"
#include "program_builder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::gpu {

/// What measures a run of steps.
struct StepTiming {
  DeviceTimeline* timeline = nullptr;    ///< then steps are queued one by one; null: none
  DeviceStopwatch* stopwatch = nullptr;  ///< runs except during collectives; null: none

  void before_step(bool collective) const {
    if (stopwatch == nullptr) return;
    // The device may wait for other ranks in a collective.
    collective ? stopwatch->stop() : stopwatch->start();
  }
};

/// Queues a list of steps. The first run with given arguments queues them one by one, so that
/// libraries can load what they need; later runs replay recordings (CUDA graphs), which one call
/// each queues.
class RecordedSteps final {
 public:
  /// Without `records`, always one by one. `steps` must outlive this object unchanged.
  RecordedSteps(DeviceQueues& device, std::span<const Step> steps, bool records)
      : device_(device), steps_(steps), records_(records) {}

  /// `exchange` progresses after each step, or recording; null: none.
  void run(const LaunchContext& context, UnitExchange* exchange, const StepTiming& timing = {});

 private:
  struct Part {
    std::unique_ptr<Replay> replay;  ///< null: a step with a collective, queued directly
    const Step* step;
  };
  /// All that a step may depend on.
  struct Arguments {
    const std::byte* base;
    Targets targets;
    DroppedBlocks dropped;
    std::int64_t samples;
    bool accumulate;
    bool reduces;
    friend bool operator==(const Arguments&, const Arguments&) = default;
  };
  struct Recording {
    Arguments arguments;
    std::vector<Part> parts;  ///< empty: it ran once, without a recording
  };
  void run_singly(const LaunchContext& context, UnitExchange* exchange, const StepTiming& timing);
  [[nodiscard]] std::vector<Part> record(const LaunchContext& context);

  DeviceQueues& device_;
  std::span<const Step> steps_;
  bool records_;
  std::vector<Recording> recordings_;
};

}  // namespace lockstep::gpu
