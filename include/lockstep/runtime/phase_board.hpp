#pragma once

#include "lockstep/comm/collective.hpp"
#include "lockstep/comm/device_progress.hpp"
#include "lockstep/runtime/phase_marks.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// What a rank is doing.
enum class Phase : std::uint8_t {
  start_up,
  data,
  forward,
  backward,
  communication,
  update,
  evaluation,
  save,
  checks,  ///< of replicas and stragglers
  end
};
[[nodiscard]] std::string_view to_string(Phase phase) noexcept;

/// This rank's progress, written by the training thread (and its saver) and read by the watchdog's
/// thread at any time. Nothing here blocks, allocates or reads a clock: each phase costs a few
/// relaxed stores.
class PhaseBoard final {
 public:
  void enter(Phase phase) noexcept;
  /// Steps count from 1. The first step of a run may take longer (see Reading::unhurried).
  void begin_step(std::int64_t step) noexcept;
  /// Records progress.
  void move() noexcept { moves_.fetch_add(1, std::memory_order_relaxed); }

  void begin_wait(CollectiveKind kind, std::size_t count) noexcept;
  void end_wait() noexcept;
  /// A nonblocking collective starts: a bucket of the step. Returns its number. Counts as a wait,
  /// until end_wait(), because NCCL connects the ranks when they first start one.
  std::int32_t start_bucket(CollectiveKind kind) noexcept;
  /// `bucket`: from start_bucket(); not read if the request is a message.
  void begin_request_wait(CollectiveKind kind, std::int32_t bucket) noexcept;

  /// Written by the communicators of this rank's device.
  [[nodiscard]] DeviceProgress& device() noexcept { return device_; }

  /// Also notifies a profiler from now on; null: none. `marks` must outlive the board's last call.
  void set_marks(PhaseMarks* marks) noexcept { marks_ = marks; }

  /// Called by the saver's thread: a piece was written. Counts as progress only in Phase::save.
  void saver_moved() noexcept { saver_moves_.fetch_add(1, std::memory_order_relaxed); }
  /// A checkpoint of this step is being saved; -1: none.
  void saving(std::int64_t step) noexcept { saving_.store(step, std::memory_order_relaxed); }

  /// Each field is consistent by itself, but fields may be read at slightly different times.
  struct Reading {
    std::uint64_t moves = 0;  ///< changes with any progress
    std::int64_t step = 0;    ///< 0: before the first
    std::int64_t saving = -1;
    std::uint64_t collectives = 0;  ///< begun so far
    std::uint64_t wait_count = 0;   ///< values in the blocking collective being waited for
    /// Bucket being computed or waited for, from 1 in the step that starts it; 0: none.
    std::int32_t bucket = 0;
    Phase phase = Phase::start_up;
    CollectiveKind waits_in = CollectiveKind::none;
    bool unhurried = true;  ///< in start-up or the run's first step, which may take longer
    DeviceProgress::Reading device = {};
  };
  [[nodiscard]] Reading read() const noexcept;

 private:
  template <typename T>
  static void add(std::atomic<T>& value) noexcept {
    value.fetch_add(1, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> moves_ = 0;
  std::atomic<std::uint64_t> saver_moves_ = 0;
  std::atomic<std::uint64_t> collectives_ = 0;
  std::atomic<std::uint64_t> wait_count_ = 0;
  std::atomic<std::int64_t> step_ = 0;
  std::atomic<std::int64_t> first_step_ = 0;
  std::atomic<std::int64_t> saving_ = -1;
  std::atomic<std::int32_t> started_ = 0;
  std::atomic<std::int32_t> wait_bucket_ = 0;
  std::atomic<Phase> phase_ = Phase::start_up;
  std::atomic<CollectiveKind> waits_in_ = CollectiveKind::none;
  DeviceProgress device_;
  PhaseMarks* marks_ = nullptr;  ///< used by the training thread only
};

}  // namespace lockstep
