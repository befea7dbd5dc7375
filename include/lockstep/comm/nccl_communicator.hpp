#pragma once

#include "lockstep/comm/device_communicator.hpp"
#include "lockstep/comm/nccl_api.hpp"
#include "lockstep/comm/roll_call.hpp"

#include <chrono>
#include <memory>

namespace lockstep {

struct NcclCommunicatorOptions {
  /// For all ranks to come, and then for NCCL to connect them.
  std::chrono::milliseconds start_limit = std::chrono::minutes(5);
  /// For anything the host waits for later: longer than the slowest step of the slowest rank, and
  /// than a watchdog's limit, which can say who is late (wait_limit_beside).
  std::chrono::milliseconds wait_limit = std::chrono::minutes(30);
  /// Multiprocessors a collective may take from the computation, at most.
  int max_ctas = 16;
};

/// Collective over all ranks of `roll_call`, each with a device of its own, which is the calling
/// thread's. `api`, `roll_call` and the compute stream outlive it. NCCL starts without blocking, so
/// that a missing rank ends the others: Error(internal) with its rank and host. So does every
/// later failure of NCCL, after which the communicator has been aborted.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_nccl_communicator(
    NcclApi& api, RollCall& roll_call, CudaStream compute, NcclCommunicatorOptions options = {});

}  // namespace lockstep
