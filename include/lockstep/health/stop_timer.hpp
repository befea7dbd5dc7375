#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// When a run must save and stop to end within its time limit. Pure: callers pass the time.
class StopTimer final {
 public:
  using Clock = std::chrono::steady_clock;

  /// What follows if the run does not stop now.
  struct Ahead {
    bool saving = false;     ///< a save in progress, which must end before the last one
    std::int64_t steps = 1;  ///< from one at which the run may stop to the next
  };

  /// Without an end, the timer is never due. `assumed_save`: seconds of a save, until one is
  /// measured.
  StopTimer(std::optional<Clock::time_point> end, double assumed_save)
      : end_(end), save_(assumed_save) {}

  void step_took(double seconds) noexcept;
  void save_took(double seconds) noexcept;
  /// Call before a step after which the run may stop. A stop request is sent with the step and
  /// takes effect after it; without a request now, `steps` more steps follow.
  [[nodiscard]] bool is_due(Clock::time_point now, const Ahead& ahead) const noexcept;
  /// Seconds that these steps, saving and stopping may take from now on.
  [[nodiscard]] double needed(const Ahead& ahead) const noexcept;

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
