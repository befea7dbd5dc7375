#pragma once

#include "lockstep/core/function_ref.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/optim/optimizer.hpp"

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

  /// For the engine's programs; null if they need none, because every rank keeps the whole model.
  [[nodiscard]] virtual UnitExchange* exchange() noexcept = 0;

  /// ProgramOptions::bucket_ends for the engine's programs.
  [[nodiscard]] virtual std::span<const std::size_t> bucket_ends() const noexcept = 0;

  // A step makes these calls in this order. Collective.
  /// Only a replicated state has local steps.
  virtual void begin_step(StepSync sync) = 0;
  struct MicroStep {
    bool first = true;
    bool last = true;
  };
  /// Backward of the micro-step notifies the returned observer when gradients are ready.
  [[nodiscard]] virtual BackwardObserver& begin_micro_step(MicroStep micro) = 0;
  /// Sums the remaining gradients, unless the step is local, and `tail` over the ranks. Calls
  /// `reduced(range)` for update_ranges() or subranges of them, in ascending order, when the sums
  /// of their gradients are ready: engine work queued from then on runs after them.
  using Reduced = FunctionRef<void(const ParameterRange& range)>;
  virtual void finish(std::span<const float> tail, Reduced reduced) = 0;
  /// Continues the collectives in flight, which progress only inside calls. Never blocks. Call it
  /// while waiting for something else.
  virtual void progress() = 0;
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
};

}  // namespace lockstep
