#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

/// A named number attached to an event. `name` must have static lifetime.
struct TraceArgument {
  const char* name = nullptr;  ///< null: none
  std::int64_t value = 0;
};
using TraceArguments = std::array<TraceArgument, 4>;

/// An activity from `begin` to `end`, in nanoseconds of this rank's steady clock.
struct TraceEvent {
  const char* name = "";
  std::int64_t begin = 0;
  std::int64_t end = 0;
  TraceArguments arguments = {};
  bool finished = true;  ///< false: still in progress when the trace ended
};

class TraceRecorder;

/// One trace track: a thread or an asynchronous activity. Allocates all memory at construction.
/// Events that do not fit are dropped and counted. Events may overlap.
class TraceRow final {
 public:
  TraceRow(const TraceRecorder& recorder, std::string name, std::size_t events);

  /// Begins an event now and ends it; from any thread.
  using Handle = std::int32_t;
  [[nodiscard]] Handle open(const char* name, const TraceArguments& arguments) noexcept;
  void close(Handle handle) noexcept;
  /// The same, with times from the caller.
  [[nodiscard]] Handle open_at(std::int64_t begin, const char* name,
                               const TraceArguments& arguments) noexcept;
  void close_at(std::int64_t end, Handle handle) noexcept;
  void add(const TraceEvent& event) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Events that ended while recording, and those in progress when it stopped (or now).
  struct Content {
    std::vector<TraceEvent> events;  ///< sorted by begin
    std::int64_t dropped = 0;
  };
  [[nodiscard]] Content content() const;

 private:
  void keep(const TraceEvent& event) noexcept;

  const TraceRecorder& recorder_;
  std::string name_;
  mutable std::mutex mutex_;  ///< guards all members below; uncontended until the trace is read
  std::vector<TraceEvent> events_;
  std::size_t size_ = 0;
  std::vector<TraceEvent> open_;  ///< by handle
  std::vector<Handle> free_;
  std::int64_t dropped_ = 0;
};

/// A rank's rows and the time range in which they are recorded. Traced code holds a pointer to a
/// recorder; if it is null, no clock is read.
class TraceRecorder final {
 public:
  /// `events`: capacity of each row.
  explicit TraceRecorder(std::size_t events) : events_(events) {}
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  /// Returns the row of that name, created on first use; its address is stable. Any thread.
  [[nodiscard]] TraceRow& row(const std::string& name);
  [[nodiscard]] std::vector<const TraceRow*> rows() const;

  /// Keeps events that end from now on.
  void start() noexcept { started_.store(true, std::memory_order_relaxed); }
  /// Stops recording permanently.
  void stop() noexcept { stopped_at_.store(now(), std::memory_order_relaxed); }
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool over() const noexcept { return stopped_at() != never; }
  [[nodiscard]] bool recording() const noexcept { return started() && !over(); }
  /// The maximum time until the recorder has stopped.
  [[nodiscard]] std::int64_t stopped_at() const noexcept {
    return stopped_at_.load(std::memory_order_relaxed);
  }

  /// Sets the current step; called by the training thread.
  void begin_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

  /// Steady clock in nanoseconds.
  [[nodiscard]] static std::int64_t now() noexcept;

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  std::size_t events_;
  std::atomic<bool> started_ = false;
  std::atomic<std::int64_t> stopped_at_ = never;
  std::atomic<std::int64_t> step_ = 0;
  mutable std::mutex mutex_;  ///< guards rows_
  std::deque<TraceRow> rows_;
};

/// Records an event from construction to destruction; a null row records nothing.
class TraceSpan final {
 public:
  TraceSpan(TraceRow* row, const char* name, const TraceArguments& arguments = {}) noexcept
      : row_(row), handle_(row != nullptr ? row->open(name, arguments) : 0) {}
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (row_ != nullptr) row_->close(handle_);
  }

 private:
  TraceRow* row_;
  TraceRow::Handle handle_;
};

/// Assigns each event to the first free lane, so that events of a lane do not overlap. Pure;
/// `events` must be sorted by begin.
[[nodiscard]] std::vector<std::size_t> lanes_of(const std::vector<TraceEvent>& events);

}  // namespace lockstep
