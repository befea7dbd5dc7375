#pragma once

#include "lockstep/health/phase_times.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Times of one phase over several steps, in seconds.
struct TimeSummary {
  double p50 = 0;
  double max = 0;
};

/// A rank's times of several steps, exchanged between ranks.
struct RankTimes {
  TimeSummary data;
  TimeSummary compute;        ///< forward, backward and update
  TimeSummary communication;  ///< waits for reductions
  TimeSummary gpu = {};       ///< PhaseTimes::gpu
  /// Medians of data + compute in the first and second half of the steps. A rank that is slow in
  /// only one half had a temporary problem.
  double own_first = 0;
  double own_second = 0;
  /// The same for `gpu`.
  double gpu_first = 0;
  double gpu_second = 0;
  double steps = 0;
};

/// "a step's p50/max: data 0.1/0.2 ms, compute ...": for the log.
[[nodiscard]] std::string to_string(const RankTimes& times);

/// This rank's step times: all steps at first, every second, fourth and so on once
/// there are many; the maximum is over all steps.
class StepTimes final {
 public:
  StepTimes() { samples_.reserve(most); }
  void add(const PhaseTimes& times);
  [[nodiscard]] RankTimes summary() const;
  void clear() noexcept;

 private:
  struct Sample {
    double data;
    double compute;
    double communication;
    double gpu;
  };
  static constexpr std::size_t most = 4096;
  std::vector<Sample> samples_;
  Sample longest_{};
  std::size_t stride_ = 1;
  std::size_t seen_ = 0;
};

/// A rank that is slower than the median rank.
struct Straggler {
  int rank = 0;
  /// What takes longer: its GPU's time, or else only its own time (data + compute). The own time
  /// includes waits for the GPU's forward, so a slow GPU also makes that longer.
  enum class By { own, gpu };
  By by = By::own;
  double factor = 0;   ///< that time over the median rank's
  double data = 0;     ///< the same for data; 0 if the median rank's time is 0
  double compute = 0;  ///< the same for compute; 0 if the median rank's time is 0
};

/// A straggler found at an epoch's end, and its step times.
struct StragglerReport {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  Straggler straggler;
  std::string host;
  RankTimes times;
};

/// Fewest steps to name stragglers.
constexpr double fewest_steps_to_judge = 20;

/// Ranks whose data + compute time, or GPU time, is more than `factor` times the median rank's (the
/// lower median) in both halves of the steps; none if `factor` is 0 or steps are few. Pure.
[[nodiscard]] std::vector<Straggler> find_stragglers(std::span<const RankTimes> ranks,
                                                     double factor);

}  // namespace lockstep
