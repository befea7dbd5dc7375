#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep {

/// When a run must save and stop to end within its time limit. Pure: callers pass the time.
class StopTimer final {
 public:
  using Clock = std::chrono::steady_clock;
  /// Seconds for the ranks to exit and the launcher to end.
  static constexpr double end_reserve = 5;

  /// What follows if the run does not stop now.
  struct Ahead {
    bool saving = false;     ///< a save in progress, which must end before the last one
    std::int64_t steps = 1;  ///< from one at which the run may stop to the next
  };

  /// Without an end, the timer is never due. `assumed_save`: seconds of a save, until one is
  /// measured.
  StopTimer(std::optional<Clock::time_point> end, double assumed_save)
      : end_(end), save_(assumed_save) {}

  void set_end(std::optional<Clock::time_point> end) noexcept { end_ = end; }
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

}  // namespace lockstep
