#include "lockstep/runtime/trace.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {
namespace {

/// Maximum number of open events of a row: buckets and units of a step that are in flight.
constexpr std::size_t most_open = 512;
constexpr TraceRow::Handle none = -1;

}  // namespace

TraceRow::TraceRow(const TraceRecorder& recorder, std::string name, std::size_t events)
    : recorder_(recorder), name_(std::move(name)), events_(events), open_(most_open) {
  free_.reserve(most_open);
  for (std::size_t i = most_open; i-- > 0;) free_.push_back(static_cast<Handle>(i));
}

TraceRow::Handle TraceRow::open(const char* name, const TraceArguments& arguments) noexcept {
  return recorder_.over() ? none : open_at(TraceRecorder::now(), name, arguments);
}

void TraceRow::close(Handle handle) noexcept {
  if (handle != none) close_at(TraceRecorder::now(), handle);
}

TraceRow::Handle TraceRow::open_at(std::int64_t begin, const char* name,
                                   const TraceArguments& arguments) noexcept {
  const std::lock_guard lock(mutex_);
  if (recorder_.over()) return none;
  if (free_.empty()) {
    ++dropped_;
    return none;
  }
  const Handle handle = free_.back();
  free_.pop_back();
  open_[static_cast<std::size_t>(handle)] = {
      .name = name, .begin = begin, .arguments = arguments, .finished = false};
  return handle;
}

void TraceRow::close_at(std::int64_t end, Handle handle) noexcept {
  if (handle == none) return;
  const std::lock_guard lock(mutex_);
  // An event that was in progress when the trace ended stays open.
  if (end > recorder_.stopped_at()) return;
  TraceEvent& event = open_[static_cast<std::size_t>(handle)];
  event.end = end;
  event.finished = true;
  free_.push_back(handle);
  keep(event);
}

void TraceRow::add(const TraceEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  keep(event);
}

void TraceRow::keep(const TraceEvent& event) noexcept {
  if (!recorder_.started() || event.end > recorder_.stopped_at()) return;
  if (size_ == events_.size()) {
    ++dropped_;
    return;
  }
  events_[size_++] = event;
}

TraceRow::Content TraceRow::content() const {
  Content content;
  const std::int64_t end = std::min(TraceRecorder::now(), recorder_.stopped_at());
  {
    const std::lock_guard lock(mutex_);
    content.dropped = dropped_;
    content.events.assign(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(size_));
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (std::ranges::find(free_, static_cast<Handle>(i)) != free_.end()) continue;
      content.events.push_back(open_[i]);
      content.events.back().end = std::max(open_[i].begin, end);
    }
  }
  std::ranges::stable_sort(content.events, {}, &TraceEvent::begin);
  return content;
}

TraceRow& TraceRecorder::row(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(rows_, name, &TraceRow::name);
  return found != rows_.end() ? *found : rows_.emplace_back(*this, name, events_);
}

std::vector<const TraceRow*> TraceRecorder::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<const TraceRow*> rows;
  for (const TraceRow& row : rows_) rows.push_back(&row);
  return rows;
}

std::int64_t TraceRecorder::now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<std::size_t> lanes_of(const std::vector<TraceEvent>& events) {
  std::vector<std::size_t> lanes;
  std::vector<std::int64_t> ends;  // end of each lane's last event
  for (const TraceEvent& event : events) {
    const auto free = std::ranges::find_if(ends, [&](auto end) { return end <= event.begin; });
    lanes.push_back(static_cast<std::size_t>(free - ends.begin()));
    if (free == ends.end())
      ends.push_back(event.end);
    else
      *free = event.end;
  }
  return lanes;
}

}  // namespace lockstep
