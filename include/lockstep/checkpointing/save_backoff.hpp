#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

/// Delays retries of failed saves: every attempt costs a replica check and a warning, and a full
/// disk stays full for a while.
class SaveBackoff final {
 public:
  using Clock = std::chrono::steady_clock;

  /// 10 s after the first failure in a row, twice as long after each further one, at most 10 min.
  [[nodiscard]] static constexpr std::chrono::seconds delay(int failures) noexcept {
    constexpr int most_doublings = 6;
    const auto doubled = std::chrono::seconds(10) * (1 << std::min(failures - 1, most_doublings));
    return std::min<std::chrono::seconds>(doubled, std::chrono::minutes(10));
  }

  void failed(Clock::time_point now) noexcept { next_ = now + delay(++failures_); }
  void succeeded() noexcept { failures_ = 0; }
  [[nodiscard]] bool may_try(Clock::time_point now) const noexcept {
    return failures_ == 0 || now >= next_;
  }

 private:
  int failures_ = 0;  ///< in a row
  Clock::time_point next_;
};

}  // namespace lockstep
