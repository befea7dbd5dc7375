#pragma once

#include "lockstep/checkpointing/stall_alarm.hpp"
#include "lockstep/data/loader.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

/// One wait of this rank for a batch. A file system that does not answer blocks the loader's
/// threads in a system call, which nothing can interrupt.
class DataWait final {
 public:
  /// Called with a warning; may be empty.
  using Warn = std::function<void(const std::string&)>;
  DataWait(const Loader& loader, const Warn& warn) : loader_(loader), warn_(warn) {}

  /// Call about once a millisecond. Warns when no sample has been read for a minute, and again each
  /// time the wait has doubled. Error(stopped) if a stop was requested and no sample has been read
  /// for 5 s.
  void check();

 private:
  const Loader& loader_;
  const Warn& warn_;
  StallAlarm alarm_{std::chrono::minutes(1)};
  std::int64_t read_ = -1;
  StallAlarm::Clock::time_point since_;
};

}  // namespace lockstep
