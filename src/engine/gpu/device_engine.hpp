#pragma once

#include "device.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"

#include <cstddef>
#include <memory>

namespace lockstep::gpu {

struct DeviceEngineOptions {
  std::size_t tail_size = 0;  ///< values after the gradients
  UnitOptions units = {};     ///< of a sharded layout
  Precision precision = Precision::fp32;
  /// As CpuEngineOptions::sum_over_ranks; each sum involves the host.
  SumOverRanks sum_over_ranks = {};
  /// Steps are recorded once and replayed (CUDA graphs). Never with sum_over_ranks, because the
  /// host takes part.
  bool records = true;
  /// Decodes JPEG files, which InputFormat::decoding announces. Error(usage) if the device cannot.
  bool decodes = false;
};

/// An engine whose programs run in a device's queue. Parameters start as zeros.
[[nodiscard]] std::unique_ptr<Engine> make_device_engine(std::shared_ptr<Device> device,
                                                         const Graph& graph,
                                                         const DeviceEngineOptions& options);

}  // namespace lockstep::gpu
