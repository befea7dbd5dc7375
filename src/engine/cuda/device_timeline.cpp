#include "device_timeline.hpp"

#include <chrono>

namespace lockstep::cuda {

std::size_t DeviceTimeline::mark(Device& device) {
  if (marked_ == events_.size()) events_.push_back(device.make_timed_event());
  device.mark(*events_[marked_], Device::Queue::work);
  return marked_++;
}

void DeviceTimeline::begin(Device& device) {
  device.synchronize();
  const std::size_t origin = mark(device);
  device.wait(*events_[origin]);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  origin_ = std::chrono::nanoseconds(now).count();
}

void DeviceTimeline::run(const Step& step, const Frame& frame) {
  if (marked_ == 0) begin(frame.device);
  const std::size_t begin = mark(frame.device);
  step.run(frame);
  spans_.push_back({.step = step.name, .begin = begin, .end = mark(frame.device)});
}

void DeviceTimeline::report(Device& device) {
  if (marked_ == 0) return;
  device.wait(*events_[marked_ - 1]);
  const auto time = [&](std::size_t event) {
    return origin_ +
           static_cast<std::int64_t>(1e9 * device.seconds_between(*events_[0], *events_[event]));
  };
  for (const Span& span : spans_) timer_->took(span.step, time(span.begin), time(span.end));
  spans_.clear();
  marked_ = 0;
}

}  // namespace lockstep::cuda
