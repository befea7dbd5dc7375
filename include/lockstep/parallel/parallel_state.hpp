#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

/// What a rank keeps of a network's parameters and gradients, and how a step brings the ranks'
/// gradients together there. All references that an implementation is made from outlive it.
class ParallelState {
 public:
  virtual ~ParallelState() = default;

  /// Of what this rank keeps and updates, which the optimizer's slots follow.
  [[nodiscard]] virtual const ArenaLayout& layout() const noexcept = 0;
  /// layout().size() values, in the engine's memory.
  [[nodiscard]] virtual std::span<float> gradients() noexcept = 0;
  /// What it updates: ranges of layout(), and where the parameters of each are.
  [[nodiscard]] virtual std::span<const UpdatePart> parts() const noexcept = 0;

  // A step, in this order. Collective.
  virtual void begin_step() = 0;
  struct MicroStep {
    bool first = true;
    bool last = true;
  };
  /// What backward of the micro-step tells as gradients are there.
  [[nodiscard]] virtual BackwardObserver& begin_micro_step(MicroStep micro) = 0;
  /// Sums what is left, and `tail`, over the ranks. Calls `reduced(part)` for parts() or
  /// parts of them, in ascending order, as the sums of their gradients are there: what the engine
  /// is asked for from then on comes after them.
  using Reduced = FunctionRef<void(const UpdatePart& part)>;
  virtual void finish(std::span<const float> tail, Reduced reduced) = 0;
  /// Seconds that this rank has waited within programs since it was last asked.
  [[nodiscard]] virtual double take_waited_seconds() = 0;
  /// After finish(): the tail's sums, in the engine's memory.
  [[nodiscard]] virtual std::span<const float> reduced_tail() noexcept = 0;
  /// After finish(): asks for the tail's sums, behind what the engine was asked for so far.
  virtual void queue_read_tail(std::span<float> tail) = 0;
  /// Until they are there.
  virtual void await_tail() = 0;
  /// All parameters that this rank updates have their new values.
  virtual void updated() = 0;

  /// Sums what ranks have for their parts, where they share the arena out; empty where each keeps
  /// all.
  [[nodiscard]] virtual SumOverRanks sum_over_parts() = 0;
  /// How many reductions a step makes of gradients.
  [[nodiscard]] virtual std::size_t reductions() const noexcept = 0;

  /// What this rank keeps, the engine's part, `slots` of an optimizer and a copy to save included.
  [[nodiscard]] virtual StateBytes bytes(std::size_t slots) = 0;

  // Between steps, between rank 0's host memory and what the ranks keep: a piece of the network at
  // a time, `whole` its values on rank 0 and empty elsewhere, so that no rank needs memory for all.
  /// Runs of Engine::layout(), each of whole views, that follow each other and cover it.
  [[nodiscard]] virtual std::span<const ArenaUnit> pieces() const noexcept = 0;
  /// The parameters of all ranks become rank 0's. Collective.
  virtual void distribute_parameters(std::size_t piece, std::span<float> whole) = 0;
  /// The same for an arena of layout().size() values in the engine's memory: an optimizer's slot.
  virtual void distribute(std::size_t piece, std::span<float> whole, std::span<float> own) = 0;
  /// What of its parameters, or of such an arena, this rank must give for rank 0 to have a piece;
  /// in the engine's memory, empty where nothing.
  [[nodiscard]] virtual std::span<const float> given_parameters(std::size_t piece) = 0;
  [[nodiscard]] virtual std::span<const float> given(std::size_t piece,
                                                     std::span<const float> own) const = 0;
  /// What the ranks give, now in host memory, to rank 0. Collective where sum_over_parts() is not
  /// empty.
  virtual void collect(std::size_t piece, std::span<const float> given, std::span<float> whole) = 0;
  /// Until the engine's parameters are up to date, where it holds them all.
  virtual void settle() = 0;
};

/// Every rank keeps the whole. `comm` reduces the engine's memory, `host` the host's.
struct ReplicationOptions {
  std::size_t tail_size = 0;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  ElementType reduce_dtype = ElementType::f32;  ///< of gradients between ranks: f32, bf16 or f16
};
[[nodiscard]] std::unique_ptr<ParallelState> make_replicated_state(
    Engine& engine, Communicator& host, Communicator& comm, const ReplicationOptions& options);

/// Communicators of a sharded state.
struct ShardComms {
  Communicator& all;         ///< all ranks, for the engine's memory: metrics
  Communicator& group_host;  ///< the shard group, for the host's memory
  Communicator& group;       ///< and for the engine's
  /// Those that keep the same part, for either memory; null: the group is all ranks.
  Communicator* replicas_host = nullptr;
  Communicator* replicas = nullptr;
};

/// Shards each unit of the engine's layout. It becomes the engine's exchange, so it is
/// made before anything is compiled. Where the engine holds the gradients, they are reduced in the
/// last micro-step alone, else in each.
struct ShardingOptions {
  std::size_t tail_size = 0;
  bool accumulates = false;                     ///< steps have more than one micro-step
  ElementType reduce_dtype = ElementType::f32;  ///< of gradients between ranks: f32, bf16 or f16
  Precision parameters = Precision::fp32;       ///< as UnitOptions have it
};
[[nodiscard]] std::unique_ptr<ParallelState> make_sharded_state(Engine& engine,
                                                                const ShardComms& comms,
                                                                const ShardingOptions& options);

/// What the engine is to hold, as --shard asks, for shard groups of `ranks`. Units that no option
/// gives, of an engine that holds all, are buckets of as many blocks as fit.
[[nodiscard]] UnitOptions unit_options(const Config& config, const Graph& graph, int ranks);
/// Of --shard hybrid, as in ShardComms.
struct HybridComms {
  Communicator* group_host = nullptr;
  Communicator* group = nullptr;
  Communicator* replicas_host = nullptr;
  Communicator* replicas = nullptr;
};
/// As --shard asks, for an engine with these units. `tail_size`: as the engine's, where it is
/// replicated.
[[nodiscard]] std::unique_ptr<ParallelState> make_parallel_state(const Config& config,
                                                                 Engine& engine, Communicator& host,
                                                                 Communicator& comm,
                                                                 std::size_t tail_size,
                                                                 const HybridComms& hybrid = {});

}  // namespace lockstep
