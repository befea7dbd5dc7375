#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace lockstep {

/// Tells when work that makes no progress is worth a warning: after `limit`, and again each time
/// the wait has doubled.
class StallAlarm final {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StallAlarm(Clock::duration limit) noexcept : limit_(limit), next_(limit) {}

  /// `progress` is any number that changes as the work moves on. How long it has stood still, where
  /// that is to be told now.
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
  Clock::duration next_;  ///< wait that is told next
  std::int64_t progress_ = -1;
  Clock::time_point since_;
};

}  // namespace lockstep
