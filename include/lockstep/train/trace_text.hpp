#pragma once

#include "lockstep/core/function_ref.hpp"
#include "lockstep/runtime/clock_offset.hpp"
#include "lockstep/runtime/trace.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// A rank's rows as events of the Chrome trace format, and what brings its clock to rank 0's.
struct RankTrace {
  int rank = 0;
  std::string host;
  ClockOffset first;  ///< when recording began
  ClockOffset last;   ///< and when it ended
};

/// Gives JSON objects with a comma behind each to `write`, a row or less at a time: the process
/// "rank 3 on HOST" and its rows as threads, and their events, in microseconds of rank 0's clock.
/// Where events of a row overlap, the row is several threads. Returns what was dropped.
std::int64_t write_rank_trace(const TraceRecorder& recorder, const RankTrace& rank,
                              FunctionRef<void(std::string_view)> write);

}  // namespace lockstep
