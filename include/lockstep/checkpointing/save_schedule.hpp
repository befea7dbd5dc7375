#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace lockstep {

/// The times of `--save-every auto`: measures by how much saves delay training, and computes from
/// that and the mean time between failures how often to save. Not collective; rank 0 decides.
class SaveSchedule final {
 public:
  struct Limits {
    double shortest = 60;            ///< seconds; the shortest interval
    double longest_first = 600;      ///< seconds; the longest interval before a save is measured
    double between_epochs = 10;      ///< seconds; the shortest time between saves at epoch ends
    double epoch_ends_share = 0.01;  ///< the most that saves at epoch ends take of the time
  };

  /// `failure_seconds`: mean time between failures of the job.
  explicit SaveSchedule(double failure_seconds) : SaveSchedule(failure_seconds, Limits{}) {}
  SaveSchedule(double failure_seconds, const Limits& limits)
      : failure_seconds_(failure_seconds), limits_(limits) {}

  /// A save begins. `paused`: seconds for which it has kept training waiting.
  void begin(double paused) noexcept;
  /// A step took `seconds`, without pauses. Steps beside a save may be slower than others.
  void step_took(double seconds);
  /// The save in progress has ended.
  void end();

  [[nodiscard]] double failure_seconds() const noexcept { return failure_seconds_; }
  /// Seconds by which a save delays training: the median of the last saves; nullopt: none yet.
  [[nodiscard]] std::optional<double> cost() const noexcept { return cost_; }
  /// Seconds between saves that lose the least time: Young's formula (1974), within the limits.
  [[nodiscard]] double interval() const noexcept;
  /// Seconds after a save at an epoch's end before the end of another epoch is saved.
  [[nodiscard]] double epoch_end_interval() const noexcept;

 private:
  static constexpr std::size_t saves_kept = 5;
  static constexpr std::size_t steps_kept = 64;
  /// Fewest steps without a save to tell whether those beside one are slower.
  static constexpr std::size_t steps_to_compare = 8;

  double failure_seconds_;
  Limits limits_;
  std::optional<double> cost_;
  std::deque<double> pauses_;  ///< of the last saves
  std::deque<double> delays_;  ///< of the last saves: the pause, and the slower steps
  std::deque<double> steps_;   ///< the last steps without a save
  int first_steps_ = 3;        ///< left that are not counted: they take longer
  bool saving_ = false;
  double paused_ = 0;        ///< by the save in progress
  double beside_ = 0;        ///< sum of the steps beside it
  double steps_beside_ = 0;  ///< their number
};

/// Delays retries of failed saves: every attempt costs a replica check and a warning, and a full
/// disk stays full for a while.
class SaveBackoff final {
 public:
  using Clock = std::chrono::steady_clock;

  /// 10 s after the first failure in a row, twice as long after each further one, at most 10 min.
  [[nodiscard]] static constexpr std::chrono::seconds delay(int failures) noexcept {
    constexpr int most_doublings = 6;
    const auto doubled = std::chrono::seconds(10) * (1 << std::min(failures - 1, most_doublings));
    return std::min<std::chrono::seconds>(doubled, std::chrono::minutes(10));
  }

  void failed(Clock::time_point now) noexcept { next_ = now + delay(++failures_); }
  void succeeded() noexcept { failures_ = 0; }
  [[nodiscard]] bool may_try(Clock::time_point now) const noexcept {
    return failures_ == 0 || now >= next_;
  }

 private:
  int failures_ = 0;  ///< in a row
  Clock::time_point next_;
};

/// Times warnings about work without progress: after `limit`, and again each time the wait has
/// doubled.
class StallAlarm final {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StallAlarm(Clock::duration limit) noexcept : limit_(limit), next_(limit) {}

  /// `progress`: any number that changes with progress. Returns the time without progress if a
  /// warning is due, else nullopt.
  [[nodiscard]] std::optional<Clock::duration> stalled(std::int64_t progress,
                                                       Clock::time_point now) noexcept {
    if (progress != progress_) {
      progress_ = progress;
      since_ = now;
      next_ = limit_;
      return std::nullopt;
    }
    const Clock::duration waited = now - since_;
    if (waited < next_) return std::nullopt;
    while (next_ <= waited) next_ *= 2;
    return waited;
  }

 private:
  Clock::duration limit_;
  Clock::duration next_;  ///< wait until the next warning
  std::int64_t progress_ = -1;
  Clock::time_point since_;
};

}  // namespace lockstep
