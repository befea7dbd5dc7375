#include "lockstep/runtime/start_clock.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <utility>

namespace lockstep {

void StartClock::enter(const char* phase) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> took = now - std::exchange(begin_, now);
  times_.push_back({.name = std::exchange(name_, phase), .seconds = took.count()});
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) MPI_Pcontrol(1, phase);
}

double StartClock::total() const noexcept {
  double seconds = 0;
  for (const PhaseTime& phase : times_) seconds += phase.seconds;
  return seconds;
}

std::string StartClock::text() const {
  std::string text = fmt::format("{:.2f} s:", total());
  for (const PhaseTime& phase : times_) {
    text +=
        fmt::format("{} {} {:.3f}", &phase == times_.data() ? "" : ",", phase.name, phase.seconds);
  }
  return text;
}

}  // namespace lockstep
