#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/parallel/gradient_sync.hpp"
#include "lockstep/parallel/shard_cost.hpp"
#include "lockstep/parallel/state_transfer.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

class Engine;

/// What this rank keeps of the parameters, their gradients and the optimizer's state. All
/// references passed to an implementation outlive it.
class ParallelState : public GradientSync, public StateTransfer {
 public:
  /// Bytes this rank keeps, including the engine's, `slots` optimizer slots and the save's copy.
  [[nodiscard]] virtual StateBytes bytes(std::size_t slots) = 0;
};

/// Every rank keeps the whole model. `comm` reduces engine memory, `host` host memory.
struct ReplicationOptions {
  std::size_t tail_size = 0;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  ElementType reduce_dtype = ElementType::f32;  ///< of the gradient reduction: f32, bf16 or f16
};
[[nodiscard]] std::unique_ptr<ParallelState> make_replicated_state(
    Engine& engine, Communicator& host, Communicator& comm, const ReplicationOptions& options);

/// Communicators of a state, along the axes of data_mesh().
struct ShardComms {
  Communicator& all;         ///< all ranks, for engine memory: metrics
  Communicator& group_host;  ///< the shard group, all ranks unless hybrid, for host memory
  Communicator& group;       ///< the same for engine memory
  /// Ranks that keep the same shard, for host and engine memory; null: one group of all ranks.
  Communicator* replicas_host = nullptr;
  Communicator* replicas = nullptr;
};

/// A sharded state shards each unit of the engine's layout. If the engine holds the gradients, they
/// are reduced only in the last micro-step, else in each.
struct ShardingOptions {
  std::size_t tail_size = 0;
  bool accumulates = false;                     ///< steps have more than one micro-step
  ElementType reduce_dtype = ElementType::f32;  ///< of the gradient reduction: f32, bf16 or f16
  Precision parameters = Precision::fp32;       ///< see UnitOptions
};
[[nodiscard]] std::unique_ptr<ParallelState> make_sharded_state(Engine& engine,
                                                                const ShardComms& comms,
                                                                const ShardingOptions& options);

/// What the engine holds under --shard, for shard groups of `ranks` ranks. With --shard optimizer
/// and --shard-unit auto, units are blocks merged up to --bucket-mb.
[[nodiscard]] UnitOptions unit_options(const Config& config, const Graph& graph, int ranks);
/// Makes the state for --shard; the engine has unit_options(). `tail_size`: the engine's, if it is
/// replicated.
[[nodiscard]] std::unique_ptr<ParallelState> make_parallel_state(const Config& config,
                                                                 Engine& engine,
                                                                 const ShardComms& comms,
                                                                 std::size_t tail_size);

}  // namespace lockstep
