#pragma once

#include "lockstep/comm/cuda_api.hpp"
#include "lockstep/comm/device_communicator.hpp"
#include "lockstep/comm/device_progress.hpp"

#include <chrono>
#include <memory>
#include <optional>

namespace lockstep {

struct StagedCommunicatorOptions {
  /// Limit of each wait of the host for a copy or collective; longer than the watchdog's limit.
  std::chrono::milliseconds wait_limit = std::chrono::minutes(30);
  std::optional<int> rank = {};  ///< job rank, for errors; nullopt: the rank in `host`
  /// Receives the counts of started collectives; null: not counted. Must outlive the communicator.
  DeviceProgress* progress = nullptr;
};

/// Makes a communicator that runs collectives on device memory over `host`, through pinned copies:
/// for several ranks on one device, or without NCCL. Nothing else may use `host`, since a started
/// collective begins on it only when its copy has arrived. `api` and the compute stream must
/// outlive the communicator. Requests progress in test(), wait(), check() and synchronize(). A step
/// that uses them cannot be captured in a graph.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_staged_communicator(
    CudaApi& api, std::unique_ptr<Communicator> host, CudaStream compute,
    StagedCommunicatorOptions options = {});

}  // namespace lockstep
