#pragma once

#include "device_queues.hpp"
#include "lockstep/engine/program.hpp"
#include "program_builder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep::gpu {

/// Times of queued steps on a device, in the host's clock, while a StepTimer wants them.
class DeviceTimeline final {
 public:
  void set_timer(StepTimer& timer) noexcept { timer_ = &timer; }
  [[nodiscard]] bool wants() const noexcept { return timer_ != nullptr && timer_->wants(); }

  /// Queues the step between two marks.
  void run(const Step& step, const LaunchContext& context);
  /// Waits for all marks and reports the steps to the timer.
  void report(DeviceQueues& device);

 private:
  struct Span {
    std::string_view step;
    std::size_t begin = 0;  ///< index into events_
    std::size_t end = 0;
  };
  /// Synchronises the clocks: the device is idle, and the host reads its own clock several times.
  void begin(DeviceQueues& device);
  [[nodiscard]] std::size_t mark(DeviceQueues& device);
  /// Waits for an event. The device reached it before the wait returned, which bounds the origin
  /// from above.
  void bound_origin(DeviceQueues& device, std::size_t event);
  [[nodiscard]] std::int64_t since_origin(DeviceQueues& device, std::size_t event) const;

  StepTimer* timer_ = nullptr;
  std::vector<std::unique_ptr<Event>> events_;  ///< reused after each report
  std::size_t marked_ = 0;
  std::int64_t origin_ = 0;  ///< of the first event, in nanoseconds of the steady clock
  std::vector<Span> spans_;
};

}  // namespace lockstep::gpu
