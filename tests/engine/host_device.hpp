#pragma once

#include "../../src/engine/cuda/device.hpp"

#include <memory>

namespace lockstep::cuda {

/// The host in a device's place: its memory begins as NaN, work runs at once, transfers when they
/// are waited for, and convolutions are plain loops, rounded where a device rounds.
[[nodiscard]] std::unique_ptr<Device> make_host_device();

}  // namespace lockstep::cuda
