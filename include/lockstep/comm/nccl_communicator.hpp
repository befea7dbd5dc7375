#pragma once

#include "lockstep/comm/device_communicator.hpp"
#include "lockstep/comm/nccl_api.hpp"
#include "lockstep/comm/rendezvous.hpp"

#include <chrono>
#include <memory>
#include <span>
#include <vector>

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

/// A communicator over each of `sets`: ranks of the job, ascending, this one among them; the k-th
/// of all ranks part the job between them. At most Rendezvous::most_leaders. Collective over all
/// ranks of `rendezvous`, each with a device of its own, which is the calling thread's. `api`,
/// `rendezvous` and the compute stream outlive them. NCCL starts without blocking, so that a
/// missing rank ends all others, whatever their sets: Error(internal) with its rank and host. So
/// does every later failure of NCCL, after which all of them have been aborted.
///
/// All ranks make the calls of all their communicators in one order, as if these were one: the
/// collectives run one after another, so that none waits on a device for room that another holds.
/// They also end, and are destroyed, in one order.
[[nodiscard]] std::vector<std::unique_ptr<DeviceCommunicator>> make_nccl_communicators(
    NcclApi& api, Rendezvous& rendezvous, CudaStream compute,
    std::span<const std::vector<int>> sets, const NcclCommunicatorOptions& options = {});

/// Over all ranks.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_nccl_communicator(
    NcclApi& api, Rendezvous& rendezvous, CudaStream compute,
    const NcclCommunicatorOptions& options = {});

}  // namespace lockstep
