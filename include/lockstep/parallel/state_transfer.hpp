#pragma once

#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

/// Transfers parameters and optimizer slots, between steps, between rank 0's host memory and what
/// the ranks keep, one unit per call. `unsharded` is the unit on rank 0 and empty elsewhere; no
/// rank needs memory for all units.
class StateTransfer {
 public:
  virtual ~StateTransfer() = default;

  /// Consecutive ranges of Engine::layout(), cut at view boundaries, that cover it.
  [[nodiscard]] virtual std::span<const ArenaUnit> units() const noexcept = 0;
  /// Sets a unit of all ranks' parameters to rank 0's values. Collective.
  virtual void scatter_parameters(std::size_t unit, std::span<float> unsharded) = 0;
  /// The same for an optimizer slot: an arena of GradientSync::layout() in the engine's memory.
  virtual void scatter(std::size_t unit, std::span<float> unsharded, std::span<float> local) = 0;
  /// Copies a unit of the parameters to rank 0. Collective if the layout is sharded.
  virtual void gather_parameters(std::size_t unit, std::span<float> unsharded) = 0;
  /// The same for an optimizer slot.
  virtual void gather(std::size_t unit, std::span<const float> local,
                      std::span<float> unsharded) = 0;
  /// Waits until all parameters that the engine holds are up to date, and for collectives that are
  /// queued early. Error if other ranks do not take part. Call before reading the engine's memory.
  virtual void await_gathers() = 0;
};

}  // namespace lockstep
