#pragma once

#include "lockstep/train/train_step.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Of one phase over an epoch's steps, in seconds.
struct TimeSummary {
  double p50 = 0;
  double max = 0;
};

/// What a rank tells the others of its epoch.
struct RankTimes {
  TimeSummary data;
  TimeSummary compute;        ///< forward, backward and update
  TimeSummary communication;  ///< waiting for sums
  /// Medians of data and compute together, in the epoch's first and second half: what is slow in
  /// one alone met something that passed.
  double own_first = 0;
  double own_second = 0;
  double steps = 0;
};

/// The times of an epoch's steps on this rank: all of them for as long as they are few, later
/// every second, fourth and so on, and every maximum.
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
  };
  static constexpr std::size_t most = 4096;
  std::vector<Sample> samples_;
  Sample longest_{};
  std::size_t stride_ = 1;
  std::size_t seen_ = 0;
};

struct Straggler {
  int rank = 0;
  double factor = 0;   ///< of its own time over the median rank's
  double data = 0;     ///< the same of each part; 0 where the median rank's is too short to tell
  double compute = 0;  ///< see data
};
/// Steps an epoch must have for anybody to be named.
constexpr double fewest_steps_to_judge = 20;

/// Pure: ranks whose data and compute time in both halves of the epoch is more than `factor` times
/// the median rank's (of an even number, the lower); none with a factor of 0, or few steps.
[[nodiscard]] std::vector<Straggler> find_stragglers(std::span<const RankTimes> ranks,
                                                     double factor);

}  // namespace lockstep
