#include "lockstep/runtime/start_alarm.hpp"

#include "lockstep/runtime/signals.hpp"

#include <utility>

namespace lockstep {

StartAlarm::StartAlarm(StartAlarmOptions options) : options_(std::move(options)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void StartAlarm::watch(const std::stop_token& stop) {
  block_signals();
  std::unique_lock lock(mutex_);
  const auto never = [] { return false; };
  stopped_.wait_for(lock, stop, options_.notice, never);
  if (stop.stop_requested()) return;
  if (options_.tell) options_.tell();
  stopped_.wait_for(lock, stop, options_.limit - options_.notice, never);
  if (!stop.stop_requested() && options_.end) options_.end();
}

}  // namespace lockstep
