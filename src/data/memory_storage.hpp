#pragma once

#include "lockstep/runtime/memory_limit.hpp"

#include <string>

namespace lockstep {

/// "tmpfs", "ramfs", "overlay on tmpfs", "/dev/zram0"; empty for storage that is not memory, as far
/// as can be seen. `mounts`: the kernel's list.
[[nodiscard]] std::string memory_file_system(const std::string& path,
                                             const std::string& mounts = "/proc/self/mountinfo");
/// False for ramfs, and for tmpfs without a limit.
[[nodiscard]] bool has_size(const std::string& path);

/// The least of node_memory_left(), for files of `processes` processes of this job.
[[nodiscard]] MemoryLimit memory_for_files(int processes);

}  // namespace lockstep
