#include "lockstep/health/early_steps.hpp"

namespace lockstep {

std::optional<EarlySteps::Sums> EarlySteps::add(const PhaseTimes& times, double samples) noexcept {
  if (complete_ || ++skipped_ <= options_.skipped) return std::nullopt;
  ++sums_.steps;
  sums_.times += times;
  sums_.samples += samples;
  complete_ = sums_.steps >= options_.enough && sums_.times.total() >= options_.seconds;
  return complete_ ? std::optional(sums_) : std::nullopt;
}

}  // namespace lockstep
