#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/core/line_follower.hpp"
#include "lockstep/report/run_record.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

/// Reads the events of a metrics.jsonl into a run's record.
class EventsReader final {
 public:
  EventsReader(RunRecord& run, const FilePath& path) : run_(run), lines_(path) {}
  /// Reads the lines that were completed since the last call. False if the file was truncated or
  /// replaced since: then read it anew, with another reader and record. Error(no_input).
  [[nodiscard]] bool read();
  /// Takes the last line too if only its end is missing: no more is expected.
  void read_rest();
  [[nodiscard]] std::int64_t lines() const noexcept { return count_; }
  /// What could not be read.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  bool read_line(std::string_view line);
  bool read_step(std::string_view line);
  void read_values(Curve& curve, const Json& event);
  void read_checkpoint(const Json& event);
  void read_straggler(const Json& event);
  void begin_session(Json event);
  void end_session(const Json& event);
  /// The event's position; updates the run's last one.
  Position advance(double step, double samples, double time);
  Position advance(const Json& event);

  RunRecord& run_;
  LineFollower lines_;
  double begin_ = unknown;  ///< Unix time of the first event, later by the time between jobs
  std::int64_t count_ = 0;  ///< of lines
  std::int64_t damaged_ = 0;
  bool torn_ = false;
  std::int64_t disordered_ = 0;
  std::int64_t dropped_sessions_ = 0;
  double last_step_line_ = -1;
};

}  // namespace lockstep::report
