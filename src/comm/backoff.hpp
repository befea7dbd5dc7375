#pragma once

#include <chrono>
#include <thread>

namespace lockstep {

/// For polling loops with a time limit: first yields, since most waits are short, then sleeps. By
/// the clock: beside other processes, a yield may take their whole time slices.
class Backoff final {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Backoff(std::chrono::milliseconds limit) : limit_(limit), end_(Clock::now() + limit) {}
  Backoff(Clock::time_point end, std::chrono::microseconds nap)
      : limit_(end - Clock::now()), end_(end), nap_(nap) {}

  /// Yields or sleeps; false once the limit has passed.
  [[nodiscard]] bool pause() {
    const auto now = Clock::now();
    if (now >= end_) return false;
    if (now < naps_from_) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap_);
    }
    return true;
  }
  [[nodiscard]] double limit_seconds() const noexcept { return limit_.count(); }
  /// Zero once the limit has passed.
  [[nodiscard]] std::chrono::milliseconds left() const {
    using std::chrono::milliseconds;
    const auto left = std::chrono::duration_cast<milliseconds>(end_ - Clock::now());
    return left > milliseconds::zero() ? left : milliseconds::zero();
  }

 private:
  static constexpr std::chrono::milliseconds yielding{1};
  std::chrono::duration<double> limit_;
  Clock::time_point end_;
  std::chrono::microseconds nap_{50};
  Clock::time_point naps_from_ = Clock::now() + yielding;
};

}  // namespace lockstep
