#include "device_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace lockstep::gpu {

std::size_t DeviceTimeline::mark(DeviceQueues& device) {
  if (marked_ == events_.size()) events_.push_back(device.make_timed_event());
  device.mark(*events_[marked_], DeviceQueues::Queue::work);
  return marked_++;
}

std::int64_t DeviceTimeline::since_origin(DeviceQueues& device, std::size_t event) const {
  return static_cast<std::int64_t>(1e9 * device.seconds_between(*events_[0], *events_[event]));
}

void DeviceTimeline::bound_origin(DeviceQueues& device, std::size_t event) {
  device.wait(*events_[event]);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::int64_t latest = std::chrono::nanoseconds(now).count() - since_origin(device, event);
  origin_ = std::min(origin_, latest);
}

void DeviceTimeline::begin(DeviceQueues& device) {
  constexpr int readings = 5;  // a single one may be late
  device.synchronize();
  origin_ = std::numeric_limits<std::int64_t>::max();
  for (int reading = 0; reading < readings; ++reading) bound_origin(device, mark(device));
}

void DeviceTimeline::run(const Step& step, const LaunchContext& context) {
  if (marked_ == 0) begin(context.device);
  const std::size_t begin = mark(context.device);
  step.run(context);
  spans_.push_back({.step = step.name, .begin = begin, .end = mark(context.device)});
}

void DeviceTimeline::report(DeviceQueues& device) {
  if (marked_ == 0) return;
  bound_origin(device, marked_ - 1);
  const auto time = [&](std::size_t event) { return origin_ + since_origin(device, event); };
  for (const Span& span : spans_) timer_->took(span.step, time(span.begin), time(span.end));
  spans_.clear();
  marked_ = 0;
}

}  // namespace lockstep::gpu
