#include "judge.hpp"
#include "lockstep/runtime/watchdog.hpp"

#include <algorithm>
#include <chrono>

namespace lockstep {

std::chrono::milliseconds wait_limit_beside(std::chrono::duration<double> limit) noexcept {
  // Short enough to add to a clock's time without overflow.
  constexpr std::chrono::hours for_ever(24 * 3650);
  constexpr std::chrono::minutes least(30);
  // If rank 0 cannot judge, other ranks do so later; both happen well before this limit.
  constexpr double factor = 2 * watch::unhurried_factor;
  const auto longest = factor * limit;
  if (limit.count() <= 0 || longest >= for_ever) return for_ever;
  return std::max<std::chrono::milliseconds>(
      least, std::chrono::duration_cast<std::chrono::milliseconds>(longest));
}

}  // namespace lockstep
