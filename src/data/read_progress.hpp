#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {

/// What the threads of a loader read. Each thread writes its own mark; any thread may ask.
class ReadProgress final {
 public:
  explicit ReadProgress(int threads) : marks_(static_cast<std::size_t>(threads)) {}

  void begin(int thread, std::int64_t sample) noexcept {
    Mark& mark = marks_[static_cast<std::size_t>(thread)];
    mark.since.store(std::chrono::steady_clock::now().time_since_epoch().count(), relaxed);
    mark.sample.store(sample, relaxed);
  }
  void end(int thread) noexcept {
    marks_[static_cast<std::size_t>(thread)].sample.store(none, relaxed);
    finished_.fetch_add(1, relaxed);
  }
  /// Reads that have ended.
  [[nodiscard]] std::int64_t finished() const noexcept { return finished_.load(relaxed); }
  /// The sample whose read has lasted longest; `none`: no read is in progress.
  [[nodiscard]] std::int64_t slowest() const noexcept {
    std::int64_t slowest = none;
    std::int64_t since = std::numeric_limits<std::int64_t>::max();
    for (const Mark& mark : marks_) {
      const std::int64_t sample = mark.sample.load(relaxed);
      if (sample == none || mark.since.load(relaxed) >= since) continue;
      slowest = sample;
      since = mark.since.load(relaxed);
    }
    return slowest;
  }
  static constexpr std::int64_t none = -1;

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  struct Mark {
    std::atomic<std::int64_t> sample = none;
    std::atomic<std::int64_t> since = 0;
  };
  std::vector<Mark> marks_;
  std::atomic<std::int64_t> finished_ = 0;
};

}  // namespace lockstep
