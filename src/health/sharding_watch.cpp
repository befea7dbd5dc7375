#include "lockstep/health/sharding_watch.hpp"

namespace lockstep {
namespace {

constexpr double tolerated = 0.1;

}  // namespace

// The first step makes the connections.
ShardingWatch::ShardingWatch() noexcept : early_({.skipped = 2, .enough = 10}) {}

std::optional<ShardingWatch::Means> ShardingWatch::add(const PhaseTimes& times,
                                                       double samples) noexcept {
  const auto sums = early_.add(times, samples);
  if (!sums) return std::nullopt;
  const double seconds = sums->times.total() - sums->times.data;
  const double waiting = sums->times.communication;
  if (waiting < tolerated * seconds) return std::nullopt;
  const auto steps = static_cast<double>(sums->steps);
  return Means{.step = seconds / steps,
               .waiting = waiting / steps,
               .images_per_second = sums->samples / (seconds - waiting)};
}

}  // namespace lockstep
