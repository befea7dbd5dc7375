#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

/// When a run has to save and stop so that it is done before its time is over. Pure: it is told
/// the time.
class StopTimer final {
 public:
  using Clock = std::chrono::steady_clock;

  /// Never, without an end. `assumed_save`: seconds of a save, until one has been measured.
  StopTimer(std::optional<Clock::time_point> end, double assumed_save)
      : end_(end), save_(assumed_save) {}

  void step_took(double seconds) noexcept;
  void save_took(double seconds) noexcept;
  /// Asked before a step: a request is sent with the step and honoured after it, so that, without
  /// one now, there is still the step after it. `saving`: a save is under way, which comes first.
  [[nodiscard]] bool is_due(Clock::time_point now, bool saving) const noexcept;
  /// Seconds that saving and stopping may take from now on.
  [[nodiscard]] double needed(bool saving) const noexcept;

 private:
  std::optional<Clock::time_point> end_;
  double step_ = 0;  ///< the longest of late
  double save_;
  bool measured_ = false;
};

/// Until when a run may go on.
struct TimeAllowed {
  std::optional<StopTimer::Clock::time_point> end;  ///< nullopt: for ever
  std::string problem;                              ///< why it is not known; empty: it is
};
/// The sooner one of `limit` seconds after `begin` (0: none) and the end that Slurm knows of.
[[nodiscard]] TimeAllowed time_allowed(StopTimer::Clock::time_point begin, double limit);

/// What Slurm says of this job.
struct SlurmTime {
  std::optional<double> seconds_left;  ///< nullopt: no job, or one without a limit
  std::string problem;                 ///< why it is not known; empty: it is
};
/// Asked of the environment, or else of squeue, a few times where it does not answer.
[[nodiscard]] SlurmTime ask_slurm_for_time();
/// Of squeue's "1-02:03:04", "02:03:04", "03:04" or "4"; nullopt for anything else.
[[nodiscard]] std::optional<double> parse_time_left(const std::string& text);

}  // namespace lockstep
