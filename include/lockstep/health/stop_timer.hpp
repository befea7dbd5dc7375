#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

/// When a run must save and stop to end within its time limit. Pure: callers pass the time.
class StopTimer final {
 public:
  using Clock = std::chrono::steady_clock;

  /// Without an end, the timer is never due. `assumed_save`: seconds of a save, until one is
  /// measured.
  StopTimer(std::optional<Clock::time_point> end, double assumed_save)
      : end_(end), save_(assumed_save) {}

  void step_took(double seconds) noexcept;
  void save_took(double seconds) noexcept;
  /// Call before a step. A stop request is sent with the step and takes effect after it; without a
  /// request now, another step follows. `saving`: a save in progress has to end first.
  [[nodiscard]] bool is_due(Clock::time_point now, bool saving) const noexcept;
  /// Seconds that saving and stopping may take from now on.
  [[nodiscard]] double needed(bool saving) const noexcept;

 private:
  std::optional<Clock::time_point> end_;
  double step_ = 0;  ///< longest recent step
  double save_;
  bool measured_ = false;
};

/// When a run must end.
struct TimeAllowed {
  std::optional<StopTimer::Clock::time_point> end;  ///< nullopt: no limit
  std::string problem;                              ///< why Slurm's end is unknown; empty: known
};
/// The earlier of `limit` seconds after `begin` (0: none) and the end of the Slurm job.
[[nodiscard]] TimeAllowed time_allowed(StopTimer::Clock::time_point begin, double limit);

/// Time left according to Slurm.
struct SlurmTime {
  std::optional<double> seconds_left;  ///< nullopt: no job, or one without a limit
  std::string problem;                 ///< why it is unknown; empty: known
};
/// From the environment, or else from squeue, which is retried a few times.
[[nodiscard]] SlurmTime ask_slurm_for_time();
/// Seconds of squeue's "1-02:03:04", "02:03:04", "03:04" or "4"; nullopt for anything else.
[[nodiscard]] std::optional<double> parse_time_left(const std::string& text);

}  // namespace lockstep
