#pragma once

#include <ostream>
#include <string>

namespace lockstep::report {

/// Writes the events of a run's metrics.jsonl as CSV (RFC 4180, with \n): a row for each event and
/// a column for each value, those of nested objects as "seconds.data". `kind`: only events of this
/// kind; empty: all. Returns the number of damaged lines, without an incomplete last one.
/// Error(no_input) if there is no metrics.jsonl, Error(usage) if it has no event of that kind.
std::size_t write_metrics_csv(const std::string& run, const std::string& kind, std::ostream& out);

}  // namespace lockstep::report
