#pragma once

#include "lockstep/health/early_steps.hpp"

#include <optional>

namespace lockstep {

/// Finds out, once and early in a run, whether this rank waits for communication. Not for engines
/// that queue: there PhaseTimes::communication contains the device's own work.
class ShardingWatch final {
 public:
  struct Means {
    double step = 0;               ///< seconds of a step, without waiting for data
    double waiting = 0;            ///< seconds of it in which this rank waits for communication
    double images_per_second = 0;  ///< of this rank while it computes
  };
  ShardingWatch() noexcept;
  /// Adds a step in which this rank trained on `samples` images. Returns the means after the step
  /// that decides, if waiting takes a tenth of the time or more.
  [[nodiscard]] std::optional<Means> add(const PhaseTimes& times, double samples) noexcept;

 private:
  EarlySteps early_;
};

}  // namespace lockstep
