#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep {

/// Times warnings about work without progress: after `limit`, and again each time the wait has
/// doubled.
class StallAlarm final {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StallAlarm(Clock::duration limit) noexcept : limit_(limit), next_(limit) {}

  /// `progress`: any number that changes with progress. Returns the time without progress if a
  /// warning is due, else nullopt.
  [[nodiscard]] std::optional<Clock::duration> stalled(std::int64_t progress,
                                                       Clock::time_point now) noexcept {
    if (progress != progress_) {
      progress_ = progress;
      since_ = now;
      next_ = limit_;
      return std::nullopt;
    }
    const Clock::duration waited = now - since_;
    if (waited < next_) return std::nullopt;
    while (next_ <= waited) next_ *= 2;
    return waited;
  }

 private:
  Clock::duration limit_;
  Clock::duration next_;  ///< wait until the next warning
  std::int64_t progress_ = -1;
  Clock::time_point since_;
};

}  // namespace lockstep
