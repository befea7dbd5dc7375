#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep {

/// Times the consecutive phases of a job's start. MPI_Pcontrol tells each phase's name to profiling
/// tools: level 1 and the name as a C string. Without such a tool it does nothing.
class StartClock final {
 public:
  struct PhaseTime {
    const char* name;
    double seconds;
  };

  /// Starts the first phase. Names must be literals.
  explicit StartClock(const char* first) : name_(first) {}

  /// Ends the current phase and starts the next one, or names what follows the start.
  void enter(const char* phase);

  [[nodiscard]] const std::vector<PhaseTime>& times() const noexcept { return times_; }
  [[nodiscard]] double total() const noexcept;
  /// "1.9 s: MPI 0.80, data 0.10"
  [[nodiscard]] std::string text() const;

 private:
  using Clock = std::chrono::steady_clock;
  const char* name_;
  Clock::time_point begin_ = Clock::now();
  std::vector<PhaseTime> times_;  ///< of the phases that have ended
};

}  // namespace lockstep
