#include "lockstep/run/trace_text.hpp"
#include "lockstep/core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 18;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Whole nanoseconds as microseconds; a double would lose digits after a long uptime.
void append_microseconds(fmt::memory_buffer& out, std::int64_t nanoseconds) {
  fmt::format_to(std::back_inserter(out), "{}{}.{:03}", nanoseconds < 0 ? "-" : "",
                 std::abs(nanoseconds / 1000), std::abs(nanoseconds % 1000));
}

class RankWriter final {
 public:
  RankWriter(const RankTrace& rank, FunctionRef<void(std::string_view)> write)
      : rank_(rank), write_(write) {
    name("process_name", 0, quoted(fmt::format("rank {} on {}", rank.rank, rank.host)));
    sort("process_sort_index", 0, rank.rank);
  }

  void row(const TraceRow& row, const TraceRow::Content& content) {
    const std::vector<std::size_t> lanes = lanes_of(content.events);
    const std::size_t count = lanes.empty() ? 1 : *std::max_element(lanes.begin(), lanes.end()) + 1;
    for (std::size_t lane = 0; lane < count; ++lane) {
      const std::size_t thread = first_thread_ + lane;
      name("thread_name", thread,
           quoted(lane == 0 ? row.name() : fmt::format("{} ({})", row.name(), lane + 1)));
      sort("thread_sort_index", thread, static_cast<std::int64_t>(thread));
    }
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      event(content.events[i], first_thread_ + lanes[i]);
    }
    first_thread_ += count;
    flush();
  }

 private:
  void name(const char* kind, std::size_t thread, const std::string& text) {
    metadata(kind, thread, "name", text);
  }
  void sort(const char* kind, std::size_t thread, std::int64_t place) {
    metadata(kind, thread, "sort_index", std::to_string(place));
  }
  void metadata(const char* kind, std::size_t thread, const char* key, const std::string& value) {
    fmt::format_to(std::back_inserter(out_),
                   R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}},)"
                   "\n",
                   rank_.rank, thread, kind, key, value);
  }

  void event(const TraceEvent& event, std::size_t thread) {
    const auto out = std::back_inserter(out_);
    const std::int64_t begin = to_root_clock(event.begin, rank_.first, rank_.last);
    fmt::format_to(out, R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":)", rank_.rank, thread,
                   event.name);
    append_microseconds(out_, begin);
    fmt::format_to(out, R"(,"dur":)");
    append_microseconds(
        out_, std::max<std::int64_t>(0, to_root_clock(event.end, rank_.first, rank_.last) - begin));
    fmt::format_to(out, R"(,"args":{{)");
    const char* comma = "";
    for (const TraceArgument& argument : event.arguments) {
      if (argument.name == nullptr) continue;
      fmt::format_to(out, R"({}"{}":{})", comma, argument.name, argument.value);
      comma = ",";
    }
    if (!event.finished) fmt::format_to(out, R"({}"unfinished":1)", comma);
    fmt::format_to(out, "}}}},\n");
    if (out_.size() >= piece_bytes) flush();
  }

  void flush() {
    if (out_.size() > 0) write_({out_.data(), out_.size()});
    out_.clear();
  }

  const RankTrace& rank_;
  FunctionRef<void(std::string_view)> write_;
  fmt::memory_buffer out_;
  std::size_t first_thread_ = 1;
};

}  // namespace

std::int64_t write_rank_trace(const TraceRecorder& recorder, const RankTrace& rank,
                              FunctionRef<void(std::string_view)> write) {
  RankWriter writer(rank, write);
  std::int64_t dropped = 0;
  for (const TraceRow* row : recorder.rows()) {
    const TraceRow::Content content = row->content();
    dropped += content.dropped;
    writer.row(*row, content);
  }
  return dropped;
}

}  // namespace lockstep
