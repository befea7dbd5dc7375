#pragma once

#include "device.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"

#include <cstddef>
#include <memory>

namespace lockstep::cuda {

struct DeviceEngineOptions {
  std::size_t tail_size = 0;  ///< values after the gradients
  UnitOptions units = {};     ///< where less than all is held, set_exchange() before compiling
  Precision precision = Precision::fp32;
  /// As CpuEngineOptions::sum_over_ranks; the host takes part in each sum.
  SumOverRanks sum_over_ranks = {};
  /// Steps are recorded once and replayed (CUDA graphs). With sum_over_ranks they never are, since
  /// the host takes part.
  bool records = true;
};

/// An engine whose programs run in a device's queue. The parameters start as zeros.
[[nodiscard]] std::unique_ptr<Engine> make_device_engine(std::shared_ptr<Device> device,
                                                         const Graph& graph,
                                                         const DeviceEngineOptions& options);

}  // namespace lockstep::cuda
