#include "lockstep/core/philox.hpp"

#include <cmath>
#include <numbers>

namespace lockstep {

double PhiloxStream::next_normal() noexcept {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - next_double()));
  return radius * std::cos(2.0 * std::numbers::pi * next_double());
}

}  // namespace lockstep
