#pragma once

#include "../graph_analysis.hpp"
#include "arena_store.hpp"
#include "device.hpp"
#include "input_queue.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/engine/unit_exchange.hpp"

#include <cstddef>
#include <memory>

namespace lockstep::cuda {

class DeviceTimeline;

/// What an engine and its programs share; it lives as long as the last of them.
struct EngineState {
  std::shared_ptr<Device> device;  ///< first, as what follows lies on it
  Graph graph;
  GraphAnalysis analysis;
  DataType type;  ///< of values, their gradients and the working copies of weights
  bool tf32;
  SumOverRanks sum_over_ranks;  ///< for batch norms in training; empty: over this rank alone
  bool records;                 ///< programs record their steps and replay them
  ArenaStore arena;
  InputQueue input;
  AlignedBuffer<float> running_statistics;
  /// The one allocation that all programs compute in; it grows while one is compiled.
  DeviceArray<std::byte> activations;
  /// Whose forward's values lie there; null: nobody's.
  const void* computed_by = nullptr;
  UnitExchange* exchange = nullptr;  ///< what brings parameters in before forward; null: nothing
  /// Null: nobody asks when the device computed.
  std::shared_ptr<DeviceTimeline> timeline = {};
};

}  // namespace lockstep::cuda
