#pragma once

#include "lockstep/core/file_path.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// `restarts` of a run directory: a line for each restart that job scripts have requested.
namespace lockstep {

/// `JOB STATUS CHECKPOINT TIME`, and the words `crash`, `unlogged`, `preempted`, `in-job`,
/// `left-out=HOSTS`, `named=HOSTS`, as far as they apply.
struct RestartRecord {
  std::string job;  ///< the first of the jobs that one submission became
  int status = 0;
  std::string checkpoint = {};             ///< the run's newest; "none"
  std::string time = {};                   ///< local, as 2026-11-25T10:00:00
  bool crashed = false;                    ///< or out of memory
  bool unlogged = false;                   ///< no rank had logged anything
  bool preempted = false;                  ///< by a job of higher priority
  bool in_job = false;                     ///< the ranks were started again within their job
  std::vector<std::string> left_out = {};  ///< hosts that the restart left out
  std::vector<std::string> named = {};     ///< hosts that most ranks' logs named
};

/// Without line break.
[[nodiscard]] std::string format_restart(const RestartRecord& record);
/// Unknown words are ignored, and what an edited line does not tell keeps its default.
[[nodiscard]] RestartRecord parse_restart(std::string_view line);

struct RestartCounts {
  std::int64_t all = 0;
  std::int64_t stalled = 0;  ///< last ones in a row that were at `checkpoint`
  std::int64_t crashed = 0;
  std::int64_t unlogged = 0;  ///< consecutive ones
};
/// Of `job`'s restarts.
[[nodiscard]] RestartCounts count_restarts(std::span<const RestartRecord> records,
                                           std::string_view job, std::string_view checkpoint);
/// Whether one of `job`'s restarts named the host.
[[nodiscard]] bool was_named(std::span<const RestartRecord> records, std::string_view job,
                             std::string_view host);

/// Empty if there is no such file yet. Error(cannot_write) if it is something else than a file of
/// the run directory alone: a restart could not be counted.
[[nodiscard]] std::vector<RestartRecord> read_restarts(const OpenDirectory& run);
/// Error(cannot_write).
void append_restart(const OpenDirectory& run, const RestartRecord& record);

}  // namespace lockstep
