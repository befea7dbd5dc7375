#pragma once

#include "lockstep/core/function_ref.hpp"
#include "lockstep/runtime/clock_offset.hpp"
#include "lockstep/runtime/trace.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// A rank and its clock offsets to rank 0, for its events in the Chrome trace format.
struct RankTrace {
  int rank = 0;
  std::string host;
  ClockOffset first;  ///< when recording began
  ClockOffset last;   ///< and when it ended
};

/// Passes JSON objects, each followed by a comma, to `write`, at most one row per call: the process
/// "rank 3 on HOST", its rows as threads, and their events in microseconds of rank 0's clock. A row
/// with overlapping events becomes several threads. Returns the number of dropped events.
std::int64_t write_rank_trace(const TraceRecorder& recorder, const RankTrace& rank,
                              FunctionRef<void(std::string_view)> write);

}  // namespace lockstep
