#include "device_stopwatch.hpp"

#include <utility>

namespace lockstep::gpu {

DeviceStopwatch::DeviceStopwatch(DeviceQueues& device) : device_(device) {
  laps_.resize(most);
  for (Lap& lap : laps_) {
    lap.begin = device.make_timed_event();
    lap.end = device.make_timed_event();
  }
}

void DeviceStopwatch::start() {
  if (running_) return;
  if (end_ - first_ == most) collect();
  if (end_ - first_ == most) {
    lost_ = true;
    return;
  }
  running_ = true;
  Lap& lap = at(end_);
  lap.is_last = false;
  device_.mark(*lap.begin, DeviceQueues::Queue::work);
}

void DeviceStopwatch::stop() {
  if (!std::exchange(running_, false)) return;
  device_.mark(*at(end_).end, DeviceQueues::Queue::work);
  ++end_;
}

void DeviceStopwatch::stop_backward() {
  stop();
  if (end_ != first_) {
    at(end_ - 1).is_last = true;
  } else {
    closed_ += std::exchange(open_, 0);
  }
}

void DeviceStopwatch::collect() {
  for (; first_ != end_ && device_.has_reached(*at(first_).end); ++first_) {
    const Lap& lap = at(first_);
    open_ += device_.seconds_between(*lap.begin, *lap.end);
    if (lap.is_last) closed_ += std::exchange(open_, 0);
  }
}

double DeviceStopwatch::take() {
  collect();
  const double seconds = std::exchange(closed_, 0);
  if (!lost_) return seconds;
  lost_ = first_ != end_;  // the laps left may be of the same step
  return 0;
}

}  // namespace lockstep::gpu
