#pragma once

#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

/// Runs the collectives of a step's list of ops: an engine's programs call it in the same order on
/// all ranks, so that the engine needs to know no communicator. A unit is one of a sharded layout,
/// or a bucket of held gradients. Spans are in the engine's memory.
class UnitExchange {
 public:
  virtual ~UnitExchange() = default;

  /// Maximum number of reductions in flight when the engine does not hold gradients.
  static constexpr std::size_t reductions_in_flight = 2;

  /// Starts to gather a unit's parameters, which the engine does not hold, into `values`: all of
  /// the unit's values, in the type of UnitOptions::parameters.
  virtual void start_gather(std::size_t /*unit*/, std::span<std::byte> /*values*/) {}
  /// Called before the first step of a pass that uses the unit's parameters.
  virtual void await_gather(std::size_t /*unit*/) {}

  /// Starts to reduce a unit's gradients, which are final for this micro-step. `gradients`, with
  /// zero gaps, stays unchanged until await_reduction().
  virtual void start_reduction(std::size_t unit, std::span<const float> gradients) = 0;
  virtual void await_reduction(std::size_t unit) = 0;
  /// Whether the sums over a shard group are summed over its replicas.
  [[nodiscard]] virtual bool has_replicas() const noexcept { return false; }
  /// Starts the all-reduce over the replicas of this rank's shard of a unit.
  virtual void start_replica_reduction(std::size_t /*unit*/) {}

  /// Called between a program's steps to progress the collectives in flight.
  virtual void progress() = 0;
  /// Blocks until a device reaches the point that `reached()` tests, which is queued after all of
  /// the above. Error if the device can no longer reach it because other ranks do not take part.
  virtual void await(FunctionRef<bool()> reached) = 0;
};

/// Whether an engine holds all parameters and gradients. Those it does not hold pass through the
/// exchange, and are in the memory plan of activations only while they are needed.
struct UnitOptions {
  UnitRule rule = {};
  bool holds_parameters = true;
  bool holds_gradients = true;
  /// Type in which parameters are gathered and held: fp32, or the 16-bit type of the engine's
  /// weights. Units with in_fp32 stay fp32, so 16 bits need UnitRule::vectors_apart.
  Precision parameters = Precision::fp32;

  /// Sets what follows from what the engine holds.
  void apply_to(StepUnits& units) const {
    units.gathers = !holds_parameters;
    if (!holds_gradients) units.reductions_in_flight = UnitExchange::reductions_in_flight;
  }
  [[nodiscard]] bool is_16_bit(const ArenaUnit& unit) const noexcept {
    return parameters != Precision::fp32 && !unit.in_fp32;
  }
  [[nodiscard]] std::size_t value_bytes(const ArenaUnit& unit) const noexcept {
    return is_16_bit(unit) ? 2 : 4;
  }
  /// Whether the engine holds the parameters in 16 bits: unit after unit, the in_fp32 unit last.
  [[nodiscard]] bool holds_16_bit() const noexcept {
    return holds_parameters && parameters != Precision::fp32;
  }
  /// Byte range of a unit within the parameters that are held in 16 bits.
  [[nodiscard]] static std::size_t held_begin(const ArenaUnit& unit) noexcept {
    return 2 * unit.begin;
  }
  [[nodiscard]] std::size_t held_end(const ArenaUnit& unit) const noexcept {
    return held_begin(unit) + unit.size() * value_bytes(unit);
  }
};

}  // namespace lockstep
