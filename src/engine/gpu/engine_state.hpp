#pragma once

#include "device.hpp"
#include "device_arena.hpp"
#include "input_queue.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/norm_exchange.hpp"

#include <cstddef>
#include <memory>

namespace lockstep::gpu {

class DeviceStopwatch;
class DeviceTimeline;

/// State shared by an engine and its programs; it lives as long as the last of them.
struct EngineState {
  std::shared_ptr<Device> device;  ///< first, because later members are in its memory
  Graph graph;
  DataType type;  ///< of values, their gradients and the working copies of weights
  bool tf32;
  GpuClass gpu;         ///< of the device
  NormExchange* norms;  ///< of batch norms in training; null: this rank only
  bool records;         ///< programs record their steps and replay them
  Recompute recompute;
  ParameterArena arena;
  WorkingParameters working;
  InputQueue input;
  AlignedBuffer<float> running_statistics;
  /// Shared by all programs; grows only while a program is compiled.
  DeviceArray<std::byte> activations;
  /// The program whose forward values are in `activations`; null: none.
  const void* computed_by = nullptr;
  /// Null: no timing.
  std::shared_ptr<DeviceTimeline> timeline = {};
  std::shared_ptr<DeviceStopwatch> stopwatch;  ///< of training
};

}  // namespace lockstep::gpu
