#pragma once

#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/precision.hpp"
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

  /// Reductions that a program has under way at a time.
  static constexpr std::size_t reductions_in_flight = 2;

  /// Begins to bring in the parameters of a unit, which the engine does not hold: `values`, as many
  /// as the unit's, in the type that UnitOptions ask for.
  virtual void start_gather(std::size_t unit, std::span<std::byte> values) = 0;
  /// Before the first step of a pass that uses a unit's parameters.
  virtual void await_gather(std::size_t unit) = 0;

  /// All of a unit's gradients, which the engine does not hold, are final for this micro-step;
  /// `gradients`, gaps zero, stay as they are until it is awaited.
  virtual void start_reduction(std::size_t unit, std::span<const float> gradients) = 0;
  virtual void await_reduction(std::size_t unit) = 0;

  /// Between steps of a program, so that what is under way moves on.
  virtual void progress() = 0;
  /// Until a device has come to `reached()`, which is queued behind all of the above; Error where
  /// it cannot any more, because other ranks do not do their part.
  virtual void await(FunctionRef<bool()> reached) = 0;
};

/// What an engine holds of units by itself; the rest passes through the exchange, and lies in the
/// memory plan of activations while it is needed.
struct UnitOptions {
  UnitRule rule = {};
  bool holds_parameters = true;
  bool holds_gradients = true;
  /// What parameters come in as, and are held as: fp32, or the 16 bits that the engine uses weights
  /// in; those of units in_fp32 are fp32 still, so vectors are apart then.
  Precision parameters = Precision::fp32;

  [[nodiscard]] bool is_16_bit(const ArenaUnit& unit) const noexcept {
    return parameters != Precision::fp32 && !unit.in_fp32;
  }
  [[nodiscard]] std::size_t value_bytes(const ArenaUnit& unit) const noexcept {
    return is_16_bit(unit) ? 2 : 4;
  }
  /// Whether the engine holds them, in 16 bits: units one after another, those in_fp32 last.
  [[nodiscard]] bool holds_16_bit() const noexcept {
    return holds_parameters && parameters != Precision::fp32;
  }
  /// Of a unit's part of what is held so.
  [[nodiscard]] static std::size_t held_begin(const ArenaUnit& unit) noexcept {
    return 2 * unit.begin;
  }
  [[nodiscard]] std::size_t held_end(const ArenaUnit& unit) const noexcept {
    return held_begin(unit) + unit.size() * value_bytes(unit);
  }
};

}  // namespace lockstep
