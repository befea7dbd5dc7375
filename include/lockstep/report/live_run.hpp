#pragma once

#include "lockstep/report/run_status.hpp"

#include <memory>
#include <optional>
#include <string>

namespace lockstep::report {

/// Follows the directory of a run that may be going on, by reading only.
class LiveRun final {
 public:
  /// Error(no_input) as require_run().
  explicit LiveRun(std::string path);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  /// Reads what was written since the last call. What cannot be read becomes a note. `now`: Unix
  /// time.
  [[nodiscard]] RunStatus update(double now);

 private:
  struct Reading;
  void read_events(double now);
  [[nodiscard]] std::optional<RunFiles::Lock> read_lock(double now);

  std::string path_;
  std::unique_ptr<Reading> reading_;
  double arrived_ = unknown;    ///< Unix time when the last event was seen
  double lock_time_ = unknown;  ///< of the lock's last change, by its host's clock
  double heartbeat_ = unknown;  ///< Unix time when that was seen
};

}  // namespace lockstep::report
