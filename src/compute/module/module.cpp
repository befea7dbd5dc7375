#include "../../engine/gpu/cuda/cuda_device.hpp"
#include "../../optim/device/device_optimizer.hpp"
#include "../module_interface.hpp"
#include "lockstep/comm/staged_communicator.hpp"
#include "nvtx_marks.hpp"

#include <array>
#include <string>
#include <vector>

namespace lockstep::gpu {
namespace {

/// Number of GPUs that are new enough, among those that this process sees.
int count_usable(int visible) {
  int usable = 0;
  for (int device = 0; device < visible; ++device) {
    int major = 0;
    const cudaError_t status =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (status == cudaSuccess && major >= 8) ++usable;
  }
  return usable;
}

PeerReach reach_of_peers(int visible) {
  PeerReach peers;
  for (int first = 0; first < visible; ++first) {
    for (int second = first + 1; second < visible; ++second) {
      int there = 0;
      int back = 0;
      const bool known = cudaDeviceCanAccessPeer(&there, first, second) == cudaSuccess &&
                         cudaDeviceCanAccessPeer(&back, second, first) == cudaSuccess;
      ++peers.pairs;
      if (known && there != 0 && back != 0) {
        ++peers.reaching;
      } else if (peers.first < 0) {
        peers.first = first;
        peers.second = second;
      }
    }
  }
  (void)cudaGetLastError();
  return peers;
}

/// By index; empty where CUDA does not tell.
std::vector<std::string> bus_ids_of(int visible) {
  std::vector<std::string> ids;
  for (int device = 0; device < visible; ++device) {
    std::array<char, 32> id{};
    const cudaError_t status = cudaDeviceGetPCIBusId(id.data(), id.size(), device);
    ids.emplace_back(status == cudaSuccess ? id.data() : "");
  }
  (void)cudaGetLastError();
  return ids;
}

DriverState probe() {
  using Status = DriverState::Status;
  DriverState state;
  (void)cudaRuntimeGetVersion(&state.runtime_version);
  if (cudaDriverGetVersion(&state.driver_version) != cudaSuccess) state.driver_version = 0;
  int visible = 0;
  const cudaError_t status = cudaGetDeviceCount(&visible);
  if (status == cudaSuccess) {
    state.devices = count_usable(visible);
    state.status = state.devices > 0 ? Status::usable : Status::no_device;
    state.peers = reach_of_peers(visible);
    state.bus_ids = bus_ids_of(visible);
    if (state.devices == 0 && visible > 0) state.detail = "compute capability below 8.0";
    return state;
  }
  state.detail = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  (void)cudaGetLastError();
  if (state.driver_version == 0) {
    state.status = Status::no_driver;
  } else if (status == cudaErrorInsufficientDriver) {
    state.status = Status::old_driver;
  } else if (status == cudaErrorNoDevice) {
    state.status = Status::no_device;
  } else {
    state.status = Status::failed;
  }
  return state;
}

/// NCCL's calls. They live as long as the process, because communicators keep references.
NcclApi& library_calls() {
  static const std::unique_ptr<NcclApi> api = make_nccl_api();
  return *api;
}

class NcclMemory final : public MemorySource {
 public:
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    return library_calls().mem_alloc(&memory, bytes) == NcclResult::success ? memory : nullptr;
  }
  void release(void* memory) noexcept override {
    static_cast<void>(library_calls().mem_free(memory));
  }
};

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  static NcclMemory nccl_memory;
  return std::make_unique<cuda::CudaDevice>(options,
                                            options.exchanges_by_nccl ? &nccl_memory : nullptr);
}

DeviceIdentity identify(const Device& device) {
  return dynamic_cast<const cuda::CudaDevice&>(device).identity();
}

int nccl_version() {
  return library_calls().version();
}

std::vector<std::unique_ptr<DeviceCommunicator>> make_nccl(Device& device, Rendezvous& rendezvous,
                                                           std::span<const std::vector<int>> sets,
                                                           const NcclCommunicatorOptions& options) {
  return make_nccl_communicators(library_calls(), rendezvous, device.stream(), sets, options);
}

std::unique_ptr<DeviceCommunicator> make_staged(Device& device, std::unique_ptr<Communicator> host,
                                                const StagedCommunicatorOptions& options) {
  return make_staged_communicator(library_calls(), std::move(host), device.stream(), options);
}

PhaseMarks* phase_marks() {
  return &cuda::nvtx_marks();
}

}  // namespace
}  // namespace lockstep::gpu

/// The module's only exported function.
extern "C" __attribute__((visibility("default"))) const lockstep::gpu::ModuleTable*
lockstep_cuda_module() {
  using namespace lockstep::gpu;
  static const std::string interface = module_interface();
  static const ModuleTable table{.interface = interface.c_str(),
                                 .probe = probe,
                                 .make_device = make_device,
                                 .identify = identify,
                                 .make_engine = make_device_engine,
                                 .make_optimizer = make_device_optimizer,
                                 .nccl_version = nccl_version,
                                 .make_nccl = make_nccl,
                                 .make_staged = make_staged,
                                 .choose_algorithms = choose_algorithms,
                                 .set_algorithms = set_algorithms,
                                 .phase_marks = phase_marks};
  return &table;
}
