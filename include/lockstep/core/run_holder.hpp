#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// The job that holds a run directory, as its lock file names it.
struct RunHolder {
  std::string job = "another job";
  std::string host = "an unknown host";
  std::string boot;  ///< boot id of the host's kernel: two machines may share a name
  std::int64_t process = 0;
  std::string started = "unknown";
  std::string token;  ///< random and unique to the holder. Empty: written by an older version
};

/// Reads a lock file's text. What a torn or edited one does not tell keeps its default.
[[nodiscard]] RunHolder parse_run_holder(std::string_view text);

/// "Slurm job 5 on node1"
[[nodiscard]] std::string name_of(const RunHolder& holder);

}  // namespace lockstep
