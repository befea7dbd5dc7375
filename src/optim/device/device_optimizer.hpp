#pragma once

#include "../../engine/gpu/device.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/optim/optimizer.hpp"

#include <memory>

namespace lockstep::gpu {

/// As lockstep::make_optimizer, for arenas in device memory; updates are queued.
[[nodiscard]] std::unique_ptr<Optimizer> make_device_optimizer(std::shared_ptr<Device> device,
                                                               const Config& config,
                                                               const ArenaLayout& layout,
                                                               const SumOverRanks& sum_norms = {});

}  // namespace lockstep::gpu
