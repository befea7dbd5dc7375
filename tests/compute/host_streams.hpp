#pragma once

#include "engine/gpu/device.hpp"
#include "lockstep/comm/device_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/staged_communicator.hpp"
#include "lockstep/runtime/phase_marks.hpp"

#include <memory>
#include <span>
#include <vector>

namespace lockstep::test {

/// The host as a device with streams: queued work runs while the host waits or queries, and NCCL's
/// communicators are the real ones over a stand-in for NCCL's calls. HOST_MODULE_GPU requests it
/// and plants a fault, if it is not empty:
///   hang:RANK:STEP    the device hangs at the beginning of that step's backward
///   slow:RANK:FACTOR  its work takes so many times as long
[[nodiscard]] bool uses_host_streams();
[[nodiscard]] std::unique_ptr<gpu::Device> make_device_with_streams();
[[nodiscard]] std::vector<std::unique_ptr<DeviceCommunicator>> make_nccl_with_streams(
    Rendezvous& rendezvous, std::span<const std::vector<int>> sets,
    const NcclCommunicatorOptions& options);
[[nodiscard]] std::unique_ptr<DeviceCommunicator> make_staged_with_streams(
    std::unique_ptr<Communicator> host, const StagedCommunicatorOptions& options);
/// Plants a hang; null: none is planted on this rank.
[[nodiscard]] PhaseMarks* fault_marks();

}  // namespace lockstep::test
