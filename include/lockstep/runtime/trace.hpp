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

/// A number that an event tells beside its name. Names live as long as the program.
struct TraceArgument {
  const char* name = nullptr;  ///< null: none
  std::int64_t value = 0;
};
using TraceArguments = std::array<TraceArgument, 4>;

/// What went on from `begin` to `end`, in nanoseconds of this rank's steady clock.
struct TraceEvent {
  const char* name = "";
  std::int64_t begin = 0;
  std::int64_t end = 0;
  TraceArguments arguments = {};
  bool finished = true;  ///< false: it went on when the trace ended
};

class TraceRecorder;

/// One line of the picture: what a thread, or what is under way beside it, is at. All memory is
/// taken at construction. What finds no place is counted and dropped. Events may overlap.
class TraceRow final {
 public:
  TraceRow(const TraceRecorder& recorder, std::string name, std::size_t events);

  /// What begins now, and what then ends; from any thread.
  using Handle = std::int32_t;
  [[nodiscard]] Handle open(const char* name, const TraceArguments& arguments) noexcept;
  void close(Handle handle) noexcept;
  /// The same at times that the caller has read.
  [[nodiscard]] Handle open_at(std::int64_t begin, const char* name,
                               const TraceArguments& arguments) noexcept;
  void close_at(std::int64_t end, Handle handle) noexcept;
  void add(const TraceEvent& event) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Of what ended while the recorder recorded, and what went on when it stopped, or goes on now.
  struct Content {
    std::vector<TraceEvent> events;  ///< by begin
    std::int64_t dropped = 0;
  };
  [[nodiscard]] Content content() const;

 private:
  void keep(const TraceEvent& event) noexcept;

  const TraceRecorder& recorder_;
  std::string name_;
  mutable std::mutex mutex_;  ///< of all below; the row's own thread alone wants it until the end
  std::vector<TraceEvent> events_;
  std::size_t size_ = 0;
  std::vector<TraceEvent> open_;  ///< by handle
  std::vector<Handle> free_;
  std::int64_t dropped_ = 0;
};

/// A rank's rows and the time they are recorded in. Who is traced has a pointer to one; null costs
/// no look at a clock.
class TraceRecorder final {
 public:
  /// `events`: places in each row.
  explicit TraceRecorder(std::size_t events) : events_(events) {}
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  /// The row of that name, made when it is first asked for; it stays where it is. Any thread.
  [[nodiscard]] TraceRow& row(const std::string& name);
  [[nodiscard]] std::vector<const TraceRow*> rows() const;

  /// Events that end from now on are kept.
  void start() noexcept { started_.store(true, std::memory_order_relaxed); }
  /// And no longer; for good.
  void stop() noexcept { stopped_at_.store(now(), std::memory_order_relaxed); }
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool over() const noexcept { return stopped_at() != never; }
  [[nodiscard]] bool recording() const noexcept { return started() && !over(); }
  /// In the farthest future until it is over.
  [[nodiscard]] std::int64_t stopped_at() const noexcept {
    return stopped_at_.load(std::memory_order_relaxed);
  }

  /// The step that is under way, from the training thread.
  void begin_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }

  /// Nanoseconds of the steady clock.
  [[nodiscard]] static std::int64_t now() noexcept;

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  std::size_t events_;
  std::atomic<bool> started_ = false;
  std::atomic<std::int64_t> stopped_at_ = never;
  std::atomic<std::int64_t> step_ = 0;
  mutable std::mutex mutex_;  ///< of the rows' list
  std::deque<TraceRow> rows_;
};

/// An event from construction to destruction; none where the row is null.
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

/// Which of several lines each event is drawn on, so that none overlap: the first that is free.
/// Pure; `events` by begin.
[[nodiscard]] std::vector<std::size_t> lanes_of(const std::vector<TraceEvent>& events);

}  // namespace lockstep
