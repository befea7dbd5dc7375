#pragma once

#include "lockstep/checkpointing/save_schedule.hpp"
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
  struct Limits {
    StallAlarm::Clock::duration warning = std::chrono::minutes(1);
    StallAlarm::Clock::duration after_signal = std::chrono::seconds(5);
  };
  DataWait(const Loader& loader, const Warn& warn) : DataWait(loader, warn, {}) {}
  DataWait(const Loader& loader, const Warn& warn, const Limits& limits)
      : loader_(loader), warn_(warn), limits_(limits) {}

  /// Call about once a millisecond. Warns when no sample has been read for `limits.warning`, and
  /// again each time the wait has doubled. Error(stopped) if a signal has requested a stop and no
  /// sample has been read for `limits.after_signal`.
  void check();

 private:
  const Loader& loader_;
  const Warn& warn_;
  Limits limits_;
  StallAlarm alarm_{limits_.warning};
  std::int64_t read_ = -1;
  StallAlarm::Clock::time_point since_;
};

}  // namespace lockstep
