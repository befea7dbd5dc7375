#pragma once

#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

/// What brings an arena's units from and to the ranks that share them out, while an engine's
/// programs run. Programs call it in the same order on all ranks. Spans are of the engine's memory.
/// Gradients that the engine holds are a BackwardObserver's to reduce.
class UnitExchange {
 public:
  virtual ~UnitExchange() = default;

  /// Begins to bring in the parameters of a unit, which the engine does not hold: `values`, of the
  /// unit's size.
  virtual void start_gather(std::size_t unit, std::span<float> values) = 0;
  /// Before the first step of a pass that uses a unit's parameters.
  virtual void await_gather(std::size_t unit) = 0;

  /// All of a unit's gradients, which the engine does not hold, are final for this micro-step;
  /// `gradients`, gaps zero, stay as they are until it is awaited.
  virtual void start_reduction(std::size_t unit, std::span<const float> gradients) = 0;
  virtual void await_reduction(std::size_t unit) = 0;

  /// Between steps of a program, so that what is under way moves on.
  virtual void progress() = 0;
};

/// What an engine holds of units by itself; the rest passes through the exchange, and lies in the
/// memory plan of activations while it is needed.
struct UnitOptions {
  UnitRule rule = {};
  bool holds_parameters = true;
  bool holds_gradients = true;
};

}  // namespace lockstep
