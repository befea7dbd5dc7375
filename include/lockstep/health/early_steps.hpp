#pragma once

#include "lockstep/health/phase_times.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

/// Sums of some early steps of a run, on which a watch decides once.
class EarlySteps final {
 public:
  struct Options {
    std::int64_t skipped = 0;  ///< first steps that do not count
    std::int64_t enough = 1;   ///< steps that count, or more until they take `seconds`
    double seconds = 0;
  };
  struct Sums {
    std::int64_t steps = 0;
    PhaseTimes times;
    double samples = 0;  ///< of this rank
  };

  explicit EarlySteps(const Options& options) noexcept : options_(options) {}

  /// Adds a step in which this rank trained on `samples` images. Returns the sums once, after the
  /// step that completes them.
  [[nodiscard]] std::optional<Sums> add(const PhaseTimes& times, double samples) noexcept;

 private:
  Options options_;
  std::int64_t skipped_ = 0;
  Sums sums_;
  bool complete_ = false;
};

}  // namespace lockstep
