#include "lockstep/health/feeding_watch.hpp"

namespace lockstep {
namespace {

/// The first steps use batches that were loaded while the run started.
constexpr std::int64_t first_steps = 8;
constexpr std::int64_t enough_steps = first_steps + 20;
constexpr double enough_seconds = 10;
/// A smaller share of waiting is not worth a warning.
constexpr double tolerated = 0.1;

}  // namespace

std::optional<FeedingWatch::Rates> FeedingWatch::add(const PhaseTimes& times,
                                                     double samples) noexcept {
  if (decided_ || ++steps_ <= first_steps) return std::nullopt;
  times_ += times;
  samples_ += samples;
  const double total = times_.total();
  if (steps_ < enough_steps || total < enough_seconds) return std::nullopt;
  decided_ = true;
  if (times_.data <= tolerated * total) return std::nullopt;
  return Rates{.loaded = samples_ / total,
               .computed = samples_ / (total - times_.data),
               .share = times_.data / total};
}

}  // namespace lockstep
