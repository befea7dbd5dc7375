#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

/// The parameters and gradients that a rank keeps, and how a step reduces gradients over ranks.
/// All references passed to an implementation outlive it.
class ParallelState {
 public:
  virtual ~ParallelState() = default;

  /// Layout of the values that this rank keeps and updates; optimizer slots have the same layout.
  [[nodiscard]] virtual const ArenaLayout& layout() const noexcept = 0;
  /// layout().size() values, in the engine's memory.
  [[nodiscard]] virtual std::span<float> gradients() noexcept = 0;
  /// The ranges of layout() that this rank updates, with their parameters.
  [[nodiscard]] virtual std::span<const ParameterRange> update_ranges() const noexcept = 0;

  /// For the engine's programs; null if they need none, because every rank keeps the whole model.
  [[nodiscard]] virtual UnitExchange* exchange() noexcept = 0;

  // A step makes these calls in this order. Collective.
  virtual void begin_step() = 0;
  struct MicroStep {
    bool first = true;
    bool last = true;
  };
  /// Backward of the micro-step notifies the returned observer when gradients are ready.
  [[nodiscard]] virtual BackwardObserver& begin_micro_step(MicroStep micro) = 0;
  /// Sums the remaining gradients and `tail` over the ranks. Calls `reduced(range)` for
  /// update_ranges() or subranges of them, in ascending order, when the sums of their gradients are
  /// ready: engine work queued from then on runs after them.
  using Reduced = FunctionRef<void(const ParameterRange& range)>;
  virtual void finish(std::span<const float> tail, Reduced reduced) = 0;
  /// Seconds that this rank has waited inside programs since the last call.
  [[nodiscard]] virtual double take_waited_seconds() = 0;
  /// After finish(): the tail's sums, in the engine's memory.
  [[nodiscard]] virtual std::span<const float> reduced_tail() noexcept = 0;
  /// After finish(): queues a copy of the tail's sums to `tail`, behind the engine's queued work.
  virtual void queue_read_tail(std::span<float> tail) = 0;
  /// Waits for that copy.
  virtual void await_tail() = 0;
  /// Call when all parameters that this rank updates have their new values.
  virtual void updated() = 0;

  /// Sums values over the shards of an arena; the identity if each rank keeps the whole arena.
  [[nodiscard]] virtual SumOverRanks sum_over_shards() = 0;
  /// Number of gradient reductions in a step.
  [[nodiscard]] virtual std::size_t reductions() const noexcept = 0;

  /// Bytes this rank keeps, including the engine's, `slots` optimizer slots and the save's copy.
  [[nodiscard]] virtual StateBytes bytes(std::size_t slots) = 0;

  // Between steps: transfers between rank 0's host memory and what the ranks keep, one unit per
  // call. `unsharded` is the unit on rank 0 and empty elsewhere; no rank needs memory for all
  // units.
  /// Consecutive ranges of Engine::layout(), cut at view boundaries, that cover it.
  [[nodiscard]] virtual std::span<const ArenaUnit> units() const noexcept = 0;
  /// Sets a unit of all ranks' parameters to rank 0's values. Collective.
  virtual void scatter_parameters(std::size_t unit, std::span<float> unsharded) = 0;
  /// The same for an optimizer slot: an arena of layout().size() values in the engine's memory.
  virtual void scatter(std::size_t unit, std::span<float> unsharded, std::span<float> local) = 0;
  /// This rank's contribution to rank 0's copy of a unit, from its parameters or from an optimizer
  /// slot; in the engine's memory, may be empty.
  [[nodiscard]] virtual std::span<const float> local_parameters(std::size_t unit) = 0;
  [[nodiscard]] virtual std::span<const float> local_values(std::size_t unit,
                                                            std::span<const float> local) const = 0;
  /// Gathers the contributions, now in host memory, on rank 0. Collective if
  /// layout().is_sharded().
  virtual void gather(std::size_t unit, std::span<const float> local,
                      std::span<float> unsharded) = 0;
  /// Waits until all parameters that the engine holds are up to date.
  virtual void await_gathers() = 0;
};

/// Every rank keeps the whole model. `comm` reduces engine memory, `host` host memory.
struct ReplicationOptions {
  std::size_t tail_size = 0;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  ElementType reduce_dtype = ElementType::f32;  ///< of the gradient reduction: f32, bf16 or f16
};
[[nodiscard]] std::unique_ptr<ParallelState> make_replicated_state(
    Engine& engine, Communicator& host, Communicator& comm, const ReplicationOptions& options);

/// Communicators of a sharded state.
struct ShardComms {
  Communicator& all;         ///< all ranks, for engine memory: metrics
  Communicator& group_host;  ///< the shard group, for host memory
  Communicator& group;       ///< the shard group, for engine memory
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
/// Communicators of --shard hybrid, as in ShardComms.
struct HybridComms {
  Communicator* group_host = nullptr;
  Communicator* group = nullptr;
  Communicator* replicas_host = nullptr;
  Communicator* replicas = nullptr;
};
/// Makes the state for --shard; the engine has unit_options(). `tail_size`: the engine's, if it is
/// replicated.
[[nodiscard]] std::unique_ptr<ParallelState> make_parallel_state(const Config& config,
                                                                 Engine& engine, Communicator& host,
                                                                 Communicator& comm,
                                                                 std::size_t tail_size,
                                                                 const HybridComms& hybrid = {});

}  // namespace lockstep
