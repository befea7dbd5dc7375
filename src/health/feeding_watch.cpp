#include "lockstep/health/feeding_watch.hpp"

namespace lockstep {
namespace {

/// The first steps use batches that were loaded while the run started.
constexpr std::int64_t uncounted_steps = 8;
constexpr std::int64_t fewest_steps = 20;
constexpr double fewest_seconds = 10;
/// A smaller share of waiting is not worth a warning.
constexpr double tolerated = 0.1;

}  // namespace

std::optional<FeedingWatch::Rates> FeedingWatch::add(const PhaseTimes& times,
                                                     double samples) noexcept {
  if (decided_ || ++steps_ <= uncounted_steps) return std::nullopt;
  times_ += times;
  samples_ += samples;
  const double total = times_.total();
  decided_ = steps_ >= uncounted_steps + fewest_steps && total >= fewest_seconds;
  if (!decided_ || times_.data <= tolerated * total) return std::nullopt;
  return Rates{.loaded = samples_ / total,
               .computed = samples_ / (total - times_.data),
               .share = times_.data / total};
}

}  // namespace lockstep
