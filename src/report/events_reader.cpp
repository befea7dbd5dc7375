#include "events_reader.hpp"

#include "json_fields.hpp"
#include "lockstep/core/function_ref.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

namespace lockstep::report {
namespace {

constexpr std::size_t most_sessions = 1000;
constexpr std::size_t most_slow_ranks = 10'000;

class NumberVisitor final : public JsonVisitor {
 public:
  explicit NumberVisitor(FunctionRef<void(std::string_view, double)> found) : found_(found) {}

  [[nodiscard]] bool is_object() const noexcept { return is_object_; }

  void begin_object() override {
    if (open_.empty()) {
      is_object_ = true;
    } else {
      path_ += '.';
    }
    open_.push_back({.path_bytes = path_.size(), .is_array = false});
  }
  void begin_array() override { open_.push_back({.path_bytes = path_.size(), .is_array = true}); }
  void end() override { open_.pop_back(); }
  void key(std::string_view text) override {
    path_.resize(open_.back().path_bytes);
    path_ += text;
  }
  void number(double value) override {
    if (!open_.empty() && !open_.back().is_array) found_(path_, value);
  }
  void number(std::int64_t value) override { number(static_cast<double>(value)); }
  void number(std::uint64_t value) override { number(static_cast<double>(value)); }
  void null() override { number(unknown); }
  void string(std::string_view /*text*/) override {}
  void boolean(bool /*value*/) override {}

 private:
  struct Level {
    std::size_t path_bytes = 0;  ///< of what is before its members' names
    bool is_array = false;
  };

  FunctionRef<void(std::string_view, double)> found_;
  std::string path_;
  bool is_object_ = false;
  std::vector<Level> open_;
};

/// Calls `found(path, value)` for every number and null (NaN) of a JSON object, with paths such as
/// "loss" and "seconds.data". Numbers in arrays are skipped. False if the text is no such object,
/// for example because it is cut off. For the lines of single steps, of which there are most.
bool scan_numbers(std::string_view text, FunctionRef<void(std::string_view, double)> found) {
  NumberVisitor visitor(found);
  return !visit_json(text, visitor) && visitor.is_object();
}

}  // namespace

bool EventsReader::read() {
  return lines_.read([&](std::string_view line) {
    ++count_;
    if (!line.empty() && !read_line(line)) ++damaged_;
  });
}

void EventsReader::read_rest() {
  // It is still being written, or was cut off.
  torn_ = !lines_.rest().empty() && !read_line(lines_.rest());
}

bool EventsReader::read_line(std::string_view line) {
  // Nearly all lines are of steps.
  if (line.starts_with(R"({"event":"step",)")) return read_step(line);
  std::optional<Json> parsed = parse_json(line);
  if (!parsed || !parsed->is_object()) return false;
  Json& event = *parsed;
  const std::string kind = text(event, "event");
  if (kind == "step") return read_step(line);
  if (kind == "epoch") read_values(run_.epochs, event);
  if (kind == "eval") read_values(run_.evaluations, event);
  if (kind == "checkpoint") read_checkpoint(event);
  if (kind == "straggler") read_straggler(event);
  if (kind == "stop") end_session(event);
  if (kind == "start" || kind == "resume") begin_session(std::move(event));
  return !kind.empty();
}

bool EventsReader::read_step(std::string_view line) {
  const std::vector<std::string>& names = run_.steps.names();
  std::array<double, most_series> values{};
  values.fill(unknown);
  double step = unknown;
  double samples = unknown;
  double time = unknown;
  // Fields mostly come in the order of `names`, so the search begins after the last one found.
  std::size_t next = 0;
  const bool complete = scan_numbers(line, [&](std::string_view path, double value) {
    if (path == "step") step = value;
    if (path == "samples") samples = value;
    if (path == "time") time = value;
    for (std::size_t tried = 0; tried < names.size(); ++tried) {
      const std::size_t i = (next + tried) % names.size();
      if (names[i] != path) continue;
      values[i] = value;
      next = i + 1;
      break;
    }
  });
  if (!complete || std::isnan(step)) return false;
  if (step <= last_step_line_) {
    ++disordered_;
    return true;
  }
  last_step_line_ = step;
  const std::size_t phases = RunRecord::series(run_.steps, "seconds.data");
  const std::size_t total = RunRecord::series(run_.steps, "seconds");
  values[total] = 0;
  for (std::size_t i = phases; i < total; ++i) values[total] += values[i];
  if (!std::isfinite(values[RunRecord::series(run_.steps, "loss")]) && run_.not_finite++ == 0) {
    run_.first_not_finite = step;
  }
  const Position at = advance(step, samples, time);
  run_.steps.add(at, std::span(values).first(names.size()));
  if (run_.recent.size() == most_recent) run_.recent.pop_front();
  run_.recent.push_back({.at = at, .values = values});
  return true;
}

void EventsReader::read_values(Curve& curve, const Json& event) {
  std::vector<double> values;
  for (const std::string& name : curve.names()) values.push_back(number(event, name.c_str()));
  const Position at = advance(event);
  curve.add(at, values);
  // Events of runs that did not record it: all epochs but the first may follow a change of batch.
  const double epoch = number(event, "epoch");
  if (&curve == &run_.epochs && std::isnan(run_.epoch_samples) && epoch >= 0) {
    run_.epoch_samples = at.samples / (epoch + 1);
  }
}

void EventsReader::read_checkpoint(const Json& event) {
  run_.checkpoints.add(advance(event), {});
  run_.saved_step = number(event, "step");
  const auto seconds = event.find("seconds");
  run_.save_seconds =
      seconds != event.end() && seconds->is_object() ? number(*seconds, "save") : unknown;
}

void EventsReader::read_straggler(const Json& event) {
  run_.stragglers.add(advance(event), {});
  const std::string host = text(event, "host");
  const double value = number(event, "rank");
  const auto rank = std::abs(value) < 1e9 ? static_cast<std::int64_t>(value) : -1;
  std::vector<SlowRank>& all = run_.slow_ranks;
  auto slow = std::ranges::find_if(
      all, [&](const SlowRank& each) { return each.host == host && each.rank == rank; });
  if (slow == all.end()) {
    if (all.size() == most_slow_ranks) return;
    slow = all.insert(all.end(), {.host = host, .rank = rank});
  }
  ++slow->reports;
  slow->last_epoch = number(event, "epoch");
  const double factor = number(event, "factor");
  slow->last_factor = factor;
  if (!(factor > slow->worst)) return;
  slow->worst = factor;
  const auto seconds = event.find("seconds");
  if (seconds == event.end() || !seconds->is_object()) return;
  const auto median = [&](const char* name) {
    const auto times = seconds->find(name);
    return times == seconds->end() || !times->is_object() ? unknown : number(*times, "p50");
  };
  slow->data = median("data");
  slow->compute = median("compute");
}

void EventsReader::begin_session(Json event) {
  // The time since the last job's last event was no training.
  const double time = number(event, "time");
  if (!std::isnan(run_.last_time) && !std::isnan(time)) {
    begin_ += std::max(0.0, time - run_.last_time);
  }
  const Position at = advance(event);
  run_.longest_pause = unknown;
  if (const double samples = number(event, "epoch_samples"); samples > 0) {
    run_.epoch_samples = samples;
  }
  if (run_.sessions.size() == most_sessions) {
    ++dropped_sessions_;
    run_.sessions.pop_back();
  }
  run_.sessions.push_back({.at = at, .event = std::move(event)});
}

void EventsReader::end_session(const Json& event) {
  const Position at = advance(event);
  if (run_.sessions.empty()) return;
  run_.sessions.back().end = at;
  run_.sessions.back().reason = text(event, "reason");
}

Position EventsReader::advance(const Json& event) {
  run_.peak_rss = std::fmax(run_.peak_rss, number(event, "peak_rss_bytes"));
  // An evaluation's samples are those that it evaluated. Checkpoints, stragglers and stops have
  // none.
  const bool evaluated = text(event, "event") == "eval";
  const double step = number(event, "step");
  const double samples = evaluated ? unknown : number(event, "samples");
  const bool same = std::isnan(samples) && step == run_.last.step;
  return advance(step, same ? run_.last.samples : samples, number(event, "time"));
}

Position EventsReader::advance(double step, double samples, double time) {
  if (!std::isnan(time)) {
    if (std::isnan(begin_)) begin_ = time;
    // A clock that was set back: time goes on from the last event.
    if (time < run_.last_time) begin_ -= run_.last_time - time;
    if (time >= run_.last_time) {
      run_.longest_pause = std::fmax(run_.longest_pause, time - run_.last_time);
    }
    run_.last_time = time;
  }
  const Position at{.step = std::isnan(step) ? run_.last.step : step,
                    .samples = samples,
                    .hours = (time - begin_) / 3600};
  // A checkpoint is reported when it is written, some steps later.
  if (at.step >= run_.last.step) run_.last = at;
  return at;
}

std::vector<std::string> EventsReader::notes() const {
  std::vector<std::string> notes;
  const auto note = [&](std::int64_t count, const char* what) {
    if (count > 0) notes.push_back(fmt::format("{} {}", count, what));
  };
  note(damaged_, "damaged lines of metrics.jsonl are left out");
  note(disordered_, "lines of metrics.jsonl repeat an earlier step and are left out");
  note(dropped_sessions_, "more jobs are left out");
  if (torn_) notes.emplace_back("the last line of metrics.jsonl is incomplete and left out");
  return notes;
}

}  // namespace lockstep::report
