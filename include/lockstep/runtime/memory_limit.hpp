#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What a process may still take of its host's memory, and what says so.
struct MemoryLimit {
  std::uint64_t bytes = 0;
  std::string source;  ///< "ulimit -v", "the control group", "the node"
  /// Processes among which the host's memory was divided equally; what one of them does not take
  /// the others may.
  int sharing = 1;
};

/// By the process's resource limits, its share of its control group's (as Slurm sets it), and of
/// what is free on the node; those that are not known are left out. `local_size`: processes that
/// share the node. `proc` and `cgroups`: where the kernel tells.
[[nodiscard]] std::vector<MemoryLimit> memory_left(int local_size,
                                                   const std::string& proc = "/proc",
                                                   const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace lockstep
