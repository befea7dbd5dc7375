#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep {

/// Counts of the collectives of this rank's device, of all its communicators, in the order in which
/// they were queued. Written by the thread that communicates, read by any thread at any time.
class DeviceProgress final {
 public:
  /// Each field is consistent by itself: a collective is reached, then completed.
  struct Reading {
    std::uint64_t reached = 0;    ///< by the device: all work before the collective is done
    std::uint64_t completed = 0;  ///< by the device
    bool awaited = false;         ///< the host waits for the device, so the counts are up to date
  };
  [[nodiscard]] Reading read() const noexcept {
    return {.reached = reached_.load(relaxed),
            .completed = completed_.load(relaxed),
            .awaited = awaited_.load(relaxed) && exact_.load(relaxed)};
  }

  /// For collectives that are reached and completed in order; their numbers are from 1.
  void reach(std::uint64_t number) noexcept { reached_.store(number, relaxed); }
  void complete(std::uint64_t number) noexcept { completed_.store(number, relaxed); }
  /// For others.
  void reach_one() noexcept { reached_.fetch_add(1, relaxed); }
  void complete_one() noexcept { completed_.fetch_add(1, relaxed); }

  void set_awaited(bool awaited) noexcept { awaited_.store(awaited, relaxed); }
  /// While false, the counts are not up to date even if the device is awaited.
  void set_exact(bool exact) noexcept { exact_.store(exact, relaxed); }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  std::atomic<std::uint64_t> reached_ = 0;
  std::atomic<std::uint64_t> completed_ = 0;
  std::atomic<bool> awaited_ = false;
  std::atomic<bool> exact_ = true;
};

/// The host waits for the device while this object exists. Null: reported to nobody.
class DeviceWait final {
 public:
  explicit DeviceWait(DeviceProgress* progress) noexcept : progress_(progress) {
    if (progress_ != nullptr) progress_->set_awaited(true);
  }
  DeviceWait(const DeviceWait&) = delete;
  DeviceWait& operator=(const DeviceWait&) = delete;
  ~DeviceWait() {
    if (progress_ != nullptr) progress_->set_awaited(false);
  }

 private:
  DeviceProgress* progress_;
};

}  // namespace lockstep
