#pragma once

#include "../engine/gpu/choose_algorithms.hpp"
#include "../engine/gpu/device.hpp"
#include "../engine/gpu/device_engine.hpp"
#include "../engine/gpu/device_options.hpp"
#include "lockstep/comm/device_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/rendezvous.hpp"
#include "lockstep/comm/staged_communicator.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/runtime/phase_marks.hpp"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

/// The interface between the program and the module lockstep-cuda.so. The module contains
/// everything that needs CUDA's libraries, so that one program runs on hosts with and without them.
/// Both come from the same build, so C++ types and exceptions cross the boundary.
namespace lockstep::gpu {

/// Increase with every change of ModuleTable or of a type that it names.
inline constexpr int module_interface_number = 30;

/// "interface 1 of lockstep 0.9.0, compiler 12.2.0"
[[nodiscard]] inline std::string module_interface() {
  return fmt::format("interface {} of lockstep {}, compiler {}", module_interface_number, version(),
                     __VERSION__);
}

/// The driver and GPUs that the module finds on this host.
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
  int runtime_version = 0;  ///< CUDA version the module was built with
  int devices = 0;          ///< GPUs that this process sees
  std::string detail;       ///< the library's own message, if any
  std::vector<std::string> bus_ids = {};  ///< of the GPUs that this process sees, by index
  PeerReach peers = {};
};

struct ModuleTable {
  /// module_interface() of the module. Stays first: it is read before the rest is trusted.
  const char* interface;
  DriverState (*probe)();
  /// Error(usage) if no GPU is fit for this rank.
  std::unique_ptr<Device> (*make_device)(const DeviceOptions& options);
  /// For a device from make_device. Ranks whose devices have the same uuid share a GPU.
  DeviceIdentity (*identify)(const Device& device);
  std::unique_ptr<Engine> (*make_engine)(std::shared_ptr<Device> device, const Graph& graph,
                                         const DeviceEngineOptions& options);
  std::unique_ptr<Optimizer> (*make_optimizer)(std::shared_ptr<Device> device, const Config& config,
                                               const ArenaLayout& layout,
                                               const SumOverRanks& sum_norms);
  /// NcclApi::version().
  int (*nccl_version)();
  /// As make_nccl_communicators. Collective. `device` and `rendezvous` must outlive the result.
  std::vector<std::unique_ptr<DeviceCommunicator>> (*make_nccl)(
      Device& device, Rendezvous& rendezvous, std::span<const std::vector<int>> sets,
      const NcclCommunicatorOptions& options);
  /// Communicates through host memory and `host`, a separate communicator.
  std::unique_ptr<DeviceCommunicator> (*make_staged)(Device& device,
                                                     std::unique_ptr<Communicator> host,
                                                     const StagedCommunicatorOptions& options);
  /// As the functions with these names in choose_algorithms.hpp.
  std::string (*choose_algorithms)(Device& device, const Graph& graph, Precision precision,
                                   std::int64_t batch_size, const std::string& known,
                                   AlgorithmCache& cache);
  void (*set_algorithms)(Device& device, const std::string& text);
  /// Lives as long as the process.
  PhaseMarks* (*phase_marks)();
};

inline constexpr const char* module_file_name = "lockstep-cuda.so";
inline constexpr const char* module_entry_point = "lockstep_cuda_module";
using ModuleEntryPoint = const ModuleTable* (*)();

}  // namespace lockstep::gpu
