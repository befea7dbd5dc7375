#include "lockstep/health/stop_timer.hpp"

#include <algorithm>

namespace lockstep {
namespace {

/// Factor for a save's time on a shared file system.
constexpr double save_reserve = 1.5;
/// Decay per step of the longest recent step.
constexpr double fading = 0.99;

}  // namespace

void StopTimer::step_took(double seconds) noexcept {
  step_ = std::max(seconds, fading * step_);
}

void StopTimer::save_took(double seconds) noexcept {
  save_ = measured_ ? std::max(save_, seconds) : seconds;
  measured_ = true;
}

double StopTimer::needed(const Ahead& ahead) const noexcept {
  return static_cast<double>(1 + ahead.steps) * step_ +
         (ahead.saving ? 2 : 1) * save_reserve * save_ + end_reserve;
}

bool StopTimer::is_due(Clock::time_point now, const Ahead& ahead) const noexcept {
  return end_ && std::chrono::duration<double>(*end_ - now).count() <= needed(ahead);
}

}  // namespace lockstep
