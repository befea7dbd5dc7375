#pragma once

#include "lockstep/core/function_ref.hpp"

#include <span>

namespace lockstep {

/// Sums values of synchronised batch norms over all ranks while a device's programs run. Programs
/// call it in the same order with the same number of values on all ranks. Spans are in the engine's
/// memory.
class NormExchange {
 public:
  virtual ~NormExchange() = default;

  /// Replaces values by their sums over ranks, bit-identical on every rank: those that the work
  /// queued so far computes, and before work that is queued later.
  virtual void sum(std::span<double> values) = 0;
  virtual void sum(std::span<float> values) = 0;
  /// Blocks until a device reaches the point that `reached()` tests, which is queued after all of
  /// the above. Error if the device can no longer reach it because other ranks do not take part.
  virtual void await(FunctionRef<bool()> reached) = 0;
};

}  // namespace lockstep
