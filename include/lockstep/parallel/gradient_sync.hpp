#pragma once

#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/step/step_graph.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

/// What a step synchronises over the ranks.
enum class StepSync {
  gradients,  ///< all ranks make the same update
  local,      ///< only the tail: each rank updates its replica with its own gradients
  average     ///< local, and then the replicas are averaged
};

/// Synchronises gradients over ranks in a step, for the parameters that this rank updates.
class GradientSync {
 public:
  virtual ~GradientSync() = default;

  /// Layout of the values that this rank keeps and updates; optimizer slots have the same layout.
  [[nodiscard]] virtual const ArenaLayout& layout() const noexcept = 0;
  /// layout().size() values, in the engine's memory.
  [[nodiscard]] virtual std::span<float> gradients() noexcept = 0;
  /// The ranges of layout() that this rank updates, with their parameters.
  [[nodiscard]] virtual std::span<const ParameterRange> update_ranges() const noexcept = 0;

  /// Runs the collectives of the engine's programs, and the reductions that end_of_step() lists.
  [[nodiscard]] virtual UnitExchange& exchange() noexcept = 0;
  /// ProgramOptions::bucket_ends of these programs.
  [[nodiscard]] virtual std::span<const std::size_t> bucket_ends() const noexcept = 0;
  /// How a step ends, except why its update depends on all gradients.
  [[nodiscard]] virtual StepEnd step_end() const noexcept = 0;
  /// The part of update_ranges() in a unit.
  [[nodiscard]] virtual ParameterRange range_of(std::size_t unit) const noexcept = 0;

  // Of each step. Collective.
  /// Only a replicated state has local steps: they reduce the tail alone.
  virtual void begin_step(StepSync sync) = 0;
  /// Gradients that the engine does not hold are added to those of earlier micro-steps unless it is
  /// the first.
  virtual void begin_micro_step(bool first) = 0;

  // Ops that end a step and are not in UnitExchange.
  /// Reduces `tail`. A replicated state also reduces gradients that no micro-step has started to
  /// reduce, because this rank's data failed before the last one.
  virtual void start_tail(std::span<const float> tail) = 0;
  virtual void await_tail() = 0;
  /// Engine work queued from then on sees the sums over the replicas.
  virtual void await_replica_reduction(std::size_t /*unit*/) {}
  /// Starts to gather a unit's new parameters, which the engine holds.
  virtual void gather_updated(std::size_t /*unit*/) {}

  /// Continues the collectives in flight, which progress only inside calls. Never blocks. Call it
  /// while waiting for something else.
  void progress() { exchange().progress(); }
  /// Seconds that this rank has waited inside programs since the last call.
  [[nodiscard]] virtual double take_waited_seconds() { return 0; }
  /// After await_tail(): the tail's sums, in the engine's memory.
  [[nodiscard]] virtual std::span<const float> reduced_tail() noexcept = 0;
  /// Queues a copy of the tail's sums to `tail`, behind the engine's queued work.
  virtual void queue_read_tail(std::span<float> tail) = 0;
  /// Waits for that copy.
  virtual void await_read_tail() = 0;

  /// Sums values over the shards of an arena; the identity if each rank keeps the whole arena.
  [[nodiscard]] virtual SumOverRanks sum_over_shards() = 0;
};

}  // namespace lockstep
