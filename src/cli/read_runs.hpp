#pragma once

#include "lockstep/report/run_record.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Reads run directories and warns of what could not be read. Error(usage) if there are none.
[[nodiscard]] std::vector<report::RunRecord> read_runs(const std::vector<std::string>& paths,
                                                       const std::string& command,
                                                       std::size_t most_bins);

}  // namespace lockstep::cli
