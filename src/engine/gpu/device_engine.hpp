#pragma once

#include "device.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/core/recompute.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/norm_exchange.hpp"

#include <cstddef>
#include <memory>

namespace lockstep::gpu {

struct DeviceEngineOptions {
  std::size_t tail_size = 0;  ///< values after the gradients
  UnitOptions units = {};     ///< of a sharded layout
  Precision precision = Precision::fp32;
  GpuClass gpu = GpuClass::sm_90;  ///< decides the order of sums
  /// Batch norms in training use the statistics of all ranks' samples; outlives the engine. Null:
  /// of this rank's samples.
  NormExchange* norms = nullptr;
  /// Steps are recorded once and replayed (CUDA graphs), except for collectives.
  bool records = true;
  Recompute recompute = Recompute::automatic;  ///< all but norms
  /// Decodes JPEG files, which InputFormat::decoding announces. Error(usage) if the device cannot.
  bool decodes = false;
};

/// An engine whose programs run in a device's queue. Parameters start as zeros.
[[nodiscard]] std::unique_ptr<Engine> make_device_engine(std::shared_ptr<Device> device,
                                                         const Graph& graph,
                                                         const DeviceEngineOptions& options);

}  // namespace lockstep::gpu
