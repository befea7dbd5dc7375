#include "lockstep/health/feeding_watch.hpp"

namespace lockstep {
namespace {

/// A smaller share of waiting is not worth a warning.
constexpr double tolerated = 0.1;

}  // namespace

// The first steps use batches that were loaded while the run started.
FeedingWatch::FeedingWatch() noexcept : early_({.skipped = 8, .enough = 20, .seconds = 10}) {}

std::optional<FeedingWatch::Rates> FeedingWatch::add(const PhaseTimes& times,
                                                     double samples) noexcept {
  const auto sums = early_.add(times, samples);
  if (!sums) return std::nullopt;
  const double total = sums->times.total();
  const double data = sums->times.data;
  if (data <= tolerated * total) return std::nullopt;
  return Rates{.loaded = sums->samples / total,
               .computed = sums->samples / (total - data),
               .share = data / total};
}

}  // namespace lockstep
