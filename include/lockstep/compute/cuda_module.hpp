#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

namespace cuda {
struct ModuleTable;
}

/// Of the pairs of GPUs that a process sees, how many reach each other's memory without the host's.
struct PeerReach {
  int pairs = 0;
  int reaching = 0;
  int first = -1;  ///< of a pair that does not; -1: there is none
  int second = -1;
};

/// Whether this process can compute on a GPU.
struct CudaAvailability {
  bool available = false;
  int devices = 0;     ///< usable GPUs that this process sees
  std::string reason;  ///< why not: *problem (why); suggestion*
  PeerReach peers = {};
};

/// Looks for the GPU module, a driver and a device. Starts no work on a device.
[[nodiscard]] CudaAvailability probe_cuda();

/// The GPU module, which stays loaded to the end of the process. Error(usage) with the reason that
/// probe_cuda gives where there is none or it cannot be used on this host.
[[nodiscard]] const cuda::ModuleTable& load_cuda_module();

/// The directories the module is looked for in, in this order: those of LOCKSTEP_MODULE_PATH
/// (separated by colons) and no others where it is set; else the program's own directory and the
/// one it is installed in, relative to the program's.
[[nodiscard]] std::vector<std::filesystem::path> cuda_module_directories();

}  // namespace lockstep
