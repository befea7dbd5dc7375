#include "read_runs.hpp"

#include "lockstep/cli/job.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace lockstep::cli {

std::vector<report::RunRecord> read_runs(const std::vector<std::string>& paths,
                                         const std::string& command, std::size_t most_bins) {
  if (paths.empty()) {
    fail(ExitStatus::usage, "{} needs a run directory (none is given); see lockstep {} --help",
         command, command);
  }
  std::vector<report::RunRecord> runs;
  for (const std::string& path : paths) {
    runs.push_back(report::read_run(path, most_bins));
    for (const std::string& note : runs.back().notes) {
      print_warning(fmt::format("{}: {}", path, note));
    }
    if (const std::int64_t count = runs.back().not_finite; count > 0) {
      print_warning(
          fmt::format("{}: {} recorded step{} with a loss that is not finite, the first at step {}",
                      path, count, count == 1 ? "" : "s", runs.back().first_not_finite));
    }
  }
  return runs;
}

}  // namespace lockstep::cli
