#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

namespace gpu {
struct ModuleTable;
}

/// Peer access between the pairs of GPUs that a process sees.
struct PeerReach {
  int pairs = 0;
  int reaching = 0;
  int first = -1;  ///< a pair without peer access; -1: none
  int second = -1;
};

/// Whether this process can compute on a GPU.
struct CudaAvailability {
  bool available = false;
  int devices = 0;     ///< usable GPUs that this process sees
  std::string reason;  ///< why not: *problem (why); suggestion*
  PeerReach peers = {};
  std::vector<std::string> bus_ids = {};  ///< by index, "0000:0a:00.0"
};

/// Looks for the GPU module, a driver and a device. Starts no work on a device.
[[nodiscard]] CudaAvailability probe_cuda();

/// The GPU module, which stays loaded until the process ends. Error(usage) with probe_cuda()'s
/// reason if it is missing or cannot be used on this host.
[[nodiscard]] const gpu::ModuleTable& load_cuda_module();

/// The directories searched for the module, in order. If LOCKSTEP_MODULE_PATH (separated by colons)
/// is set, only its directories, which must be absolute (else Error(usage)); else the program's own
/// directory and the installation directory relative to it.
[[nodiscard]] std::vector<std::filesystem::path> cuda_module_directories();

}  // namespace lockstep
