#pragma once

#include "../../src/engine/cuda/device.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::cuda {

/// When queued work runs: a device may be as quick or as slow.
enum class HostWork {
  at_once,  ///< before the call that queues it returns
  late      ///< when somebody waits for it
};

/// The host in a device's place: its memory begins as NaN, transfers run when they are waited for,
/// and convolutions are plain loops, rounded where a device rounds.
[[nodiscard]] std::unique_ptr<Device> make_host_device(HostWork when = HostWork::at_once);
/// What such a device was asked for, and told, of convolutions.
struct HostConvolutions {
  std::vector<std::pair<ConvolutionShape, ConvolutionPasses>> made;
  std::vector<ConvolutionRequest> timed;
  AlgorithmChoices taken;
};
[[nodiscard]] const HostConvolutions& convolutions(const Device& host_device);
/// Bytes that such a device has now for communication.
[[nodiscard]] std::size_t exchanged_bytes(const Device& host_device);
/// How much work of such a device nobody has waited for yet.
[[nodiscard]] std::size_t work_left(const Device& host_device);

}  // namespace lockstep::cuda
