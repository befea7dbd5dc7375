#pragma once

#include "lockstep/comm/device_communicator.hpp"
#include "lockstep/comm/device_progress.hpp"
#include "lockstep/comm/nccl_api.hpp"
#include "lockstep/comm/nccl_settings.hpp"
#include "lockstep/comm/rendezvous.hpp"

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Limit for NCCL to start: 5 minutes and 0.1 s a rank, at most 20 minutes. Pure.
[[nodiscard]] std::chrono::milliseconds nccl_start_limit(int ranks) noexcept;

struct NcclCommunicatorOptions {
  NcclSettings settings = {};
  /// Limit for all ranks to arrive, and again for NCCL to connect them and run a first collective.
  std::chrono::milliseconds start_limit = std::chrono::minutes(5);
  /// The program's option that sets it, for the message when it is exceeded; empty: none.
  std::string limit_option = {};
  /// Limit of each later wait on the host. Must exceed the slowest rank's slowest step, and the
  /// watchdog's limit, so that the watchdog can name the late rank first (see wait_limit_beside).
  std::chrono::milliseconds wait_limit = std::chrono::minutes(30);
  /// Maximum number of multiprocessors that a collective takes from computation.
  int max_ctas = 16;
  /// More ranks than this start with several unique ids (NCCL 2.23 and newer), so that no rank
  /// serves the start of more.
  int ranks_per_id = 128;
  /// Receives the counts of collectives; null: not counted. Must outlive the communicators.
  DeviceProgress* progress = nullptr;
};

/// Makes one communicator per set. A set holds ascending job ranks, including this one; over all
/// ranks, the k-th sets partition the job. The first holds all ranks; the communicators of the
/// others are split from its own. Collective over all ranks of `rendezvous`. Each rank has a
/// separate device, the calling thread's current one.
/// `api`, `rendezvous` and the compute stream must outlive the communicators. NCCL starts in
/// nonblocking mode: if a rank is missing, all others, whatever their sets, get an Error(internal)
/// with its rank and host. A first collective of each communicator is part of the start, since NCCL
/// connects the ranks in it. Any later NCCL failure throws too, after aborting all communicators.
///
/// All ranks must make the calls of all their communicators in the same order, as if on a single
/// communicator. The collectives run one after another, so none waits on a device for resources
/// that another holds. The communicators must also be destroyed in the same order on all ranks.
[[nodiscard]] std::vector<std::unique_ptr<DeviceCommunicator>> make_nccl_communicators(
    NcclApi& api, Rendezvous& rendezvous, CudaStream compute,
    std::span<const std::vector<int>> sets, const NcclCommunicatorOptions& options = {});

/// Makes one communicator over all ranks.
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_nccl_communicator(
    NcclApi& api, Rendezvous& rendezvous, CudaStream compute,
    const NcclCommunicatorOptions& options = {});

}  // namespace lockstep
