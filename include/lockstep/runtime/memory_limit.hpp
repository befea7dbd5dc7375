#pragma once

#include "lockstep/core/environment_variable.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The memory that a process may still allocate, and the source of this limit.
struct MemoryLimit {
  std::uint64_t bytes = 0;
  std::string source;  ///< "ulimit -v", "the control group", "the node"
  /// Number of processes among which the memory was divided equally; a process may use more than
  /// its share if others use less.
  int processes = 1;
};

/// Limits from the process's resource limits, its share of the control group's limit (set by
/// Slurm), and its share of the node's available memory; unknown limits are omitted. `local_size`:
/// number of processes on the node. `proc` and `cgroups`: mount points of these file systems.
[[nodiscard]] std::vector<MemoryLimit> memory_left(int local_size,
                                                   const std::string& proc = "/proc",
                                                   const std::string& cgroups = "/sys/fs/cgroup");

/// What all processes of the job on this node together may still allocate, and files in memory with
/// them: by the control group's limit, by Slurm's (SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU), and by
/// the node's available memory; unknown limits are omitted. `lookup` returns a variable's value.
struct NodeProcesses {
  int count = 1;  ///< of the job on the node, which use about as much as this one
  VariableLookup lookup = {};
};
[[nodiscard]] std::vector<MemoryLimit> node_memory_left(
    const NodeProcesses& processes, const std::string& proc = "/proc",
    const std::string& cgroups = "/sys/fs/cgroup");

/// The most memory that this process has had resident.
[[nodiscard]] std::int64_t peak_resident_bytes() noexcept;

}  // namespace lockstep
