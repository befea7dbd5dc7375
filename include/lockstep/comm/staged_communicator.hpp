#pragma once

#include "lockstep/comm/cuda_api.hpp"
#include "lockstep/comm/device_communicator.hpp"

#include <chrono>
#include <memory>
#include <optional>

namespace lockstep {

struct StagedCommunicatorOptions {
  /// For a copy or a reduction that the host waits for; longer than a watchdog's limit.
  std::chrono::milliseconds wait_limit = std::chrono::minutes(30);
  std::optional<int> rank = {};  ///< this one's of the job, for errors; without: `host`'s
};

/// Collectives over device memory by `host`, through pinned copies: for several ranks on one
/// device, and where there is no NCCL. `host` is a communicator for this use alone, since what is
/// started begins when its copies are there, later than other calls. `api` and the compute stream
/// outlive it. Requests move on in test(), wait(), check() and synchronize(); a step with them
/// cannot be captured in a graph.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_staged_communicator(
    CudaApi& api, std::unique_ptr<Communicator> host, CudaStream compute,
    StagedCommunicatorOptions options = {});

}  // namespace lockstep
