#pragma once

#include "lockstep/health/phase_times.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// Finds out, once and early in a run, whether a rank's loader is slower than its engine.
class FeedingWatch final {
 public:
  /// Images per second of this rank.
  struct Rates {
    double loaded = 0;
    double computed = 0;  ///< if data were always there
    double share = 0;     ///< of the time in which the engine waits for data
  };
  /// Adds a step in which this rank trained on `samples` images. Returns the rates after the step
  /// that decides, if the loader holds up training.
  [[nodiscard]] std::optional<Rates> add(const PhaseTimes& times, double samples) noexcept;

 private:
  std::int64_t steps_ = 0;
  PhaseTimes times_;  ///< of the steps that count, as `samples_`
  double samples_ = 0;
  bool decided_ = false;
};

}  // namespace lockstep
