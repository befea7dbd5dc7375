#pragma once

#include "../engine/cuda/choose_algorithms.hpp"
#include "../engine/cuda/device.hpp"
#include "../engine/cuda/device_engine.hpp"
#include "../engine/cuda/device_options.hpp"
#include "lockstep/comm/device_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/rendezvous.hpp"
#include "lockstep/comm/staged_communicator.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/runtime/phase_marks.hpp"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

/// What the program and the module lockstep-cuda.so know of each other. The module holds all that
/// needs CUDA's libraries, so that one program runs on hosts with and without them. Both are built
/// together: C++ types cross the boundary, and exceptions do.
namespace lockstep::cuda {

/// Raised with every change of ModuleTable or of a type it names.
inline constexpr int module_interface_number = 23;

/// "interface 1 of lockstep 0.9.0, compiler 12.2.0"
[[nodiscard]] inline std::string module_interface() {
  return fmt::format("interface {} of lockstep {}, compiler {}", module_interface_number, version(),
                     __VERSION__);
}

/// What the module finds on this host.
struct DriverState {
  enum class Status {
    usable,
    no_driver,
    old_driver,
    no_device,  ///< or none that is new enough
    failed,
  };
  Status status = Status::usable;
  int driver_version = 0;   ///< newest CUDA the driver supports, 13000 for 13.0; 0: no driver
  int runtime_version = 0;  ///< CUDA the module was built with
  int devices = 0;          ///< GPUs this process sees
  std::string detail;       ///< the library's own words, where it has some
  PeerReach peers = {};
};

struct ModuleTable {
  /// module_interface() of the module. Stays first, for it is read before anything else is trusted.
  const char* interface;
  DriverState (*probe)();
  /// Error(usage) where no GPU is fit for this rank.
  std::unique_ptr<Device> (*make_device)(const DeviceOptions& options);
  /// Of a device that make_device made; ranks whose devices have one uuid share a GPU.
  DeviceIdentity (*identify)(const Device& device);
  std::unique_ptr<Engine> (*make_engine)(std::shared_ptr<Device> device, const Graph& graph,
                                         const DeviceEngineOptions& options);
  std::unique_ptr<Optimizer> (*make_optimizer)(std::shared_ptr<Device> device, const Config& config,
                                               const ArenaLayout& layout,
                                               const SumOverRanks& sum_norms);
  /// As make_nccl_communicators. Collective. `device` and `rendezvous` outlive them.
  std::vector<std::unique_ptr<DeviceCommunicator>> (*make_nccl)(
      Device& device, Rendezvous& rendezvous, std::span<const std::vector<int>> sets,
      const NcclCommunicatorOptions& options);
  /// Through the host's memory and `host`, a communicator for this use alone.
  std::unique_ptr<DeviceCommunicator> (*make_staged)(Device& device,
                                                     std::unique_ptr<Communicator> host,
                                                     const StagedCommunicatorOptions& options);
  /// As the functions of these names, in choose_algorithms.hpp.
  std::string (*choose_algorithms)(Device& device, const Graph& graph, Precision precision,
                                   std::int64_t batch_size, const std::string& known,
                                   AlgorithmCache& cache);
  void (*take_algorithms)(Device& device, const std::string& text);
  /// There as long as the process.
  PhaseMarks* (*phase_marks)();
};

inline constexpr const char* module_file_name = "lockstep-cuda.so";
inline constexpr const char* module_entry_point = "lockstep_cuda_module";
using ModuleEntryPoint = const ModuleTable* (*)();

}  // namespace lockstep::cuda
