#include "lockstep/run/run_trace.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/run/step_trace.hpp"
#include "lockstep/runtime/traced_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

/// Capacity of one row: enough for hundreds of buckets per step, at most 6 MiB.
std::size_t events_a_row(const StepRange& steps) {
  constexpr std::int64_t a_step = 1024;
  return static_cast<std::size_t>(a_step *
                                  std::clamp<std::int64_t>(steps.last - steps.first + 1, 4, 64));
}

/// Sent to rank 0 after a rank's events.
struct Summary {
  std::int64_t offset = 0;
  std::int64_t uncertainty = 0;
  std::int64_t dropped = 0;
};

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Summary summary_of(const RankTrace& trace, std::int64_t dropped) {
  return {.offset = trace.first.offset,
          .uncertainty = std::max(trace.first.uncertainty, trace.last.uncertainty),
          .dropped = dropped};
}

/// Collective.
ClockOffset offset_of_this_clock(RootChannel& channel) {
  return measure_clock_offset(channel, [] { return TraceRecorder::now(); });
}

/// The trace's metadata after the events: clock offsets and their uncertainty.
std::string other_data(const std::vector<Summary>& ranks, std::int64_t first, std::int64_t last) {
  Json list = Json::array();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    list.push_back({{"rank", rank},
                    {"clock_offset_us", 1e-3 * static_cast<double>(ranks[rank].offset)},
                    {"clock_uncertainty_us", 1e-3 * static_cast<double>(ranks[rank].uncertainty)},
                    {"dropped_events", ranks[rank].dropped}});
  }
  return Json{{"program", "lockstep " + version()},
              {"first_step", first},
              {"last_step", last},
              {"clock", "microseconds of rank 0's steady clock"},
              {"ranks", list}}
      .dump();
}

}  // namespace

std::unique_ptr<TraceRecorder> make_trace_recorder(const Config& config) {
  if (config.profile_steps == StepRange{}) return nullptr;
  auto recorder = std::make_unique<TraceRecorder>(events_a_row(config.profile_steps));
  // In display order from the top; the loader adds its rows when it is made.
  for (const char* name :
       {TraceRows::steps, TraceRows::phases, StepTrace::row_name, TracedCommunicator::under_way_row,
        TracedCommunicator::waiting_row, TraceRows::evaluation, TraceRows::save}) {
    static_cast<void>(recorder->row(name));
  }
  return recorder;
}

TraceRow* evaluation_row(TraceRecorder* recorder) {
  return recorder != nullptr ? &recorder->row(TraceRows::evaluation) : nullptr;
}

RunTrace::RunTrace(const RunTraceOptions& options, TraceRecorder& recorder, PhaseBoard& board,
                   RunReporter& reporter)
    : steps_(options.steps),
      run_dir_(options.run_dir),
      comm_(options.comm),
      recorder_(recorder),
      board_(board),
      reporter_(reporter),
      mine_{.rank = options.grid.rank, .host = options.grid.host, .first = {}, .last = {}} {}

bool RunTrace::step_begins(std::int64_t step) {
  recorder_.begin_step(step);
  if (first_step_ != 0 || step < steps_.first || step > steps_.last) return false;
  first_step_ = step;
  board_.enter(Phase::checks);
  mine_.first = offset_of_this_clock(channel_);
  // Rank 0 has answered the ranks one after another; align them again.
  comm_.barrier();
  recorder_.start();
  return true;
}

bool RunTrace::step_ended(std::int64_t step) {
  const bool due = recorder_.recording() && step >= steps_.last;
  if (due) write(step);
  return due;
}

void RunTrace::run_ends(std::int64_t step) {
  if (recorder_.recording()) write(step);
  if (first_step_ != 0) return;
  reporter_.say(
      fmt::format("no trace: this run, which ends at step {}, made none of --profile-steps {}:{}",
                  step, steps_.first, steps_.last));
}

void RunTrace::write(std::int64_t last_step) {
  recorder_.stop();
  board_.enter(Phase::checks);
  mine_.last = offset_of_this_clock(channel_);
  if (channel_.rank() != 0) return send();
  const FilePath path =
      OpenDirectory(run_dir_) / fmt::format("trace-{}-{}.json", first_step_, last_step);
  try {
    gather(path, last_step);
  } catch (const Error& error) {
    if (error.status() != ExitStatus::cannot_write) throw;
    reporter_.warn(fmt::format("no trace: {}", error.what()));
  }
}

void RunTrace::send() {
  const auto send_text = [&](std::string_view text) {
    std::uint64_t size = text.size();
    channel_.send(0, bytes_of(size));
    if (size > 0) channel_.send(0, std::as_bytes(std::span(text)));
  };
  Summary summary = summary_of(mine_, write_rank_trace(recorder_, mine_, send_text));
  send_text({});
  channel_.send(0, bytes_of(summary));
}

void RunTrace::gather(const FilePath& path, std::int64_t last_step) {
  std::vector<Summary> ranks;
  write_atomically(path, [&](TemporaryFile& file) {
    // Write errors must not stop the loop below: the other ranks' sends would block.
    const auto write_text = [&](std::string_view text) {
      file.append(text);
      board_.move();
    };
    write_text(R"({"displayTimeUnit":"ms","traceEvents":[)"
               "\n");
    ranks.push_back(summary_of(mine_, write_rank_trace(recorder_, mine_, write_text)));
    std::string piece;
    for (int rank = 1; rank < channel_.size(); ++rank) {
      for (std::uint64_t size = 0;;) {
        channel_.receive(rank, bytes_of(size));
        if (size == 0) break;
        piece.resize(size);
        channel_.receive(rank, std::as_writable_bytes(std::span(piece)));
        write_text(piece);
      }
      channel_.receive(rank, bytes_of(ranks.emplace_back()));
    }
    // The last element of the list must not have a trailing comma.
    write_text(fmt::format(
        R"({{"ph":"M","pid":0,"tid":0,"name":"process_labels","args":{{"labels":"steps {} to {}"}}}}],)"
        "\n"
        R"("otherData":{}}})"
        "\n",
        first_step_, last_step, other_data(ranks, first_step_, last_step)));
  });
  const auto worst = std::ranges::max(ranks, {}, &Summary::uncertainty).uncertainty;
  reporter_.say(fmt::format(
      "trace: steps {} to {} in {}; clocks agree within {:.1f} us (open it in ui.perfetto.dev)",
      first_step_, last_step, path.text(), 1e-3 * static_cast<double>(worst)));
  std::int64_t dropped = 0;
  for (const Summary& rank : ranks) dropped += rank.dropped;
  if (dropped > 0) {
    reporter_.warn(fmt::format(
        "{} events are missing from the trace (their buffers were full); trace fewer steps",
        dropped));
  }
}

}  // namespace lockstep
