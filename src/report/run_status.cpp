#include "lockstep/report/run_status.hpp"

#include "json_fields.hpp"
#include "lockstep/core/parse_number.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/report/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

namespace lockstep::report {
namespace {

/// Recorded steps whose mean time is shown.
constexpr std::size_t most_timed_steps = 20;
/// A job without a heartbeat for so many seconds has ended; network file systems may show an old
/// one for a minute.
constexpr double dead_after = 120;

double value(const RunRecord& run, const RecordedStep& row, const char* name) {
  return row.values[RunRecord::series(run.steps, name)];
}

std::vector<double> recent_values(const RunRecord& run, const char* name) {
  std::vector<double> values;
  for (const RecordedStep& row : run.recent) values.push_back(value(run, row, name));
  return values;
}

std::vector<double> means(const Curve& curve, const char* name) {
  std::vector<double> values;
  for (std::size_t bin = 0; bin < curve.bins(); ++bin) {
    values.push_back(curve.range(bin, RunRecord::series(curve, name)).mean());
  }
  return values;
}

/// Number of steps in `recent` that the last job recorded.
std::size_t steps_of_job(const RunRecord& run) {
  if (run.sessions.empty()) return run.recent.size();
  const auto first = std::ranges::find_if(run.recent, [&](const RecordedStep& row) {
    return row.at.step > run.sessions.back().at.step;
  });
  return static_cast<std::size_t>(run.recent.end() - first);
}

/// Seconds from the first to the last of the last `count` recorded steps.
double seconds_of(const RunRecord& run, std::size_t count) {
  return 3600 * (run.recent.back().at.hours - run.recent[run.recent.size() - count].at.hours);
}

void describe_machine(const RunRecord& run, RunStatus& status) {
  status.model = option_of(run, "model");
  status.jobs = static_cast<double>(run.sessions.size());
  status.peak_rss = run.peak_rss;
  if (run.sessions.empty()) return;
  const Json& event = run.sessions.back().event;
  if (const std::string model = text(event, "model"); !model.empty()) status.model = model;
  status.hosts = text(event, "hosts");
  status.device = text(event, "device");
  status.version = text(event, "version");
  status.ranks = number(event, "ranks");
  status.nodes = number(event, "nodes");
  const auto memory = event.find("memory");
  if (memory == event.end() || !memory->is_object()) return;
  status.planned_bytes = 0;
  for (const auto& bytes : *memory) {
    if (bytes.is_number()) status.planned_bytes += bytes.get<double>();
  }
}

/// Epochs and steps: those done, and those of the whole run.
void measure_progress(const RunRecord& run, RunStatus& status) {
  status.step = run.last.step;
  status.epochs = parse_number<double>(option_of(run, "epochs")).value_or(unknown);
  // The last step whose number of samples is known.
  Position known{.step = -1};
  const auto consider = [&](const Position& at) {
    if (at.step >= known.step && !std::isnan(at.samples)) known = at;
  };
  if (!run.sessions.empty()) consider(run.sessions.back().at);
  for (const Curve* curve : {&run.steps, &run.epochs}) {
    if (curve->bins() > 0) consider(curve->position(curve->bins() - 1));
  }
  const double batch =
      run.sessions.empty() ? unknown : number(run.sessions.back().event, "global_batch");
  const double later = run.last.step - known.step;
  const double samples = known.samples + (later > 0 ? later * batch : 0);
  status.epoch = samples / run.epoch_samples;
  status.steps =
      known.step + std::round((status.epochs * run.epoch_samples - known.samples) / batch);
  if (const double most = parse_number<double>(option_of(run, "max-steps")).value_or(0); most > 0) {
    status.steps = std::fmin(status.steps, most);
    status.epochs = std::fmin(status.epochs, std::ceil(most * batch / run.epoch_samples));
  }
}

void describe_last_step(const RunRecord& run, RunStatus& status) {
  if (run.recent.empty()) return;
  const RecordedStep& last = run.recent.back();
  status.loss = value(run, last, "loss");
  status.top1 = value(run, last, "top1");
  status.lr = value(run, last, "lr");
  status.images_per_second = value(run, last, "images_per_second");
  status.gradient_norm = value(run, last, "gradient_norm");
  status.last_losses = recent_values(run, "loss");
  status.last_speeds = recent_values(run, "images_per_second");
  status.all_losses = means(run.steps, "loss");
  status.first_not_finite = run.first_not_finite;
}

void describe_validation(const RunRecord& run, RunStatus& status) {
  const Figures figures = figures_of(run);
  status.validation_loss = figures.loss;
  status.validation_top1 = figures.top1;
  status.validation_ema_top1 = figures.ema_top1;
  status.best_top1 = figures.best_top1;
  status.best_step = figures.best_step;
  status.validation_top1s = means(run.evaluations, "top1");
}

/// Of the last job, or if it has recorded no step, of the jobs before.
void measure_phases(const RunRecord& run, RunStatus& status) {
  const std::size_t steps = steps_of_job(run);
  const std::size_t count = std::min(steps > 0 ? steps : run.recent.size(), most_timed_steps);
  if (count == 0) return;
  const std::size_t first = RunRecord::series(run.steps, "seconds.data");
  std::array<double, phase_names.size()> sums{};
  for (std::size_t row = run.recent.size() - count; row < run.recent.size(); ++row) {
    const auto& values = run.recent[row].values;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += values[first + i] / static_cast<double>(count);
    }
  }
  status.phase_steps = static_cast<double>(count);
  status.phases = sums;
  status.step_seconds = 0;
  for (const double seconds : sums) status.step_seconds += seconds;
}

void find_slowest(const RunRecord& run, RunStatus& status) {
  const auto slowest = std::ranges::max_element(run.slow_ranks, {}, [](const SlowRank& rank) {
    return std::pair(rank.last_epoch, rank.last_factor);
  });
  if (slowest == run.slow_ranks.end() || std::isnan(slowest->last_factor)) return;
  status.slowest = *slowest;
}

void describe_files(const RunRecord& run, const RunFiles& files, double now, RunStatus& status) {
  status.checkpoint = files.latest;
  status.restarts = files.restarts;
  if (files.lock) status.holder = files.lock->holder;
  if (!files.latest) return;
  std::string_view name = files.latest->name;
  if (name.starts_with("step-") && name.ends_with(".h5")) {
    name = name.substr(5, name.size() - 8);
    status.checkpoint_step = parse_number<double>(name).value_or(unknown);
  }
  status.checkpoint_age = std::fmax(0.0, now - files.latest->time);
  if (run.saved_step == status.checkpoint_step) status.save_seconds = run.save_seconds;
}

/// Seconds without an event that are no sign of a fault: evaluations and saves take their time.
double usual_pause(const RunRecord& run) {
  constexpr double least = 5;
  constexpr double before_the_first_step = 60;
  if (std::isnan(run.longest_pause)) return before_the_first_step;
  double usual = std::fmax(least, 2 * run.longest_pause);
  if (const std::size_t steps = steps_of_job(run); steps > 1) {
    usual = std::fmax(usual, 10 * seconds_of(run, steps) / static_cast<double>(steps - 1));
  }
  return usual;
}

void judge_activity(const RunRecord& run, const RunFiles& files, double now, RunStatus& status) {
  if (!run.sessions.empty() && run.sessions.back().end) {
    status.reason = run.sessions.back().reason;
    status.activity = status.reason == "finished"   ? Activity::finished
                      : status.reason == "diverged" ? Activity::failed
                                                    : Activity::stopped;
    return;
  }
  if (run.sessions.empty() && run.steps.rows() == 0) return;
  if (files.lock && files.lock->holder.empty()) {
    status.activity = Activity::failed;
    status.reason = "ended without a stop event; see log/";
    return;
  }
  status.activity = status.silent > usual_pause(run) ? Activity::silent : Activity::running;
  if (status.activity == Activity::running) return;
  if (files.lock) {
    const double age = now - files.lock->heartbeat;
    if (age > dead_after) {
      status.activity = Activity::failed;
      status.reason =
          fmt::format("no heartbeat from {} for {}", status.holder, format_duration(age));
      return;
    }
  }
  status.reason = std::isnan(run.longest_pause)
                      ? "no event since the job's start"
                      : "longest earlier pause: " + time_text(run.longest_pause);
}

void estimate_time_left(const RunRecord& run, RunStatus& status) {
  const std::size_t count = steps_of_job(run);
  if (status.activity != Activity::running || count < 2) return;
  const double steps = run.recent.back().at.step - run.recent[run.recent.size() - count].at.step;
  const double each = seconds_of(run, count) / steps;
  const double left = each * (status.steps - run.last.step) - status.silent;
  if (!std::isnan(left)) status.seconds_left = std::fmax(0.0, left);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json array_of(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(json_of(value));
  return array;
}

Json seconds_json(const RunStatus& status) {
  if (status.phase_steps == 0) return nullptr;
  Json json{{"steps", json_of(status.phase_steps)}, {"total", json_of(status.step_seconds)}};
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    json[phase_names[i]] = json_of(status.phases[i]);
  }
  return json;
}

Json slowest_json(const std::optional<SlowRank>& slowest) {
  if (!slowest) return nullptr;
  return {{"rank", slowest->rank},
          {"host", slowest->host},
          {"factor", json_of(slowest->last_factor)},
          {"epoch", json_of(slowest->last_epoch)},
          {"reports", slowest->reports}};
}

Json checkpoint_json(const RunStatus& status) {
  if (!status.checkpoint) return nullptr;
  return {{"name", status.checkpoint->name},
          {"step", json_of(status.checkpoint_step)},
          {"age_seconds", json_of(status.checkpoint_age)},
          {"save_seconds", json_of(status.save_seconds)}};
}

}  // namespace

const char* name_of(Activity activity) {
  constexpr std::array names{"empty", "running", "silent", "finished", "stopped", "failed"};
  return names[static_cast<std::size_t>(activity)];
}

RunStatus status_of(const RunRecord& run, const RunFiles& files, double now) {
  RunStatus status;
  status.path = run.path;
  status.name = run.name;
  status.silent = std::fmax(0.0, now - files.arrived);
  describe_machine(run, status);
  measure_progress(run, status);
  describe_last_step(run, status);
  describe_validation(run, status);
  measure_phases(run, status);
  find_slowest(run, status);
  describe_files(run, files, now, status);
  judge_activity(run, files, now, status);
  estimate_time_left(run, status);
  status.notes = run.notes;
  return status;
}

Json status_json(const RunStatus& status) {
  return {{"path", status.path},
          {"name", status.name},
          {"state", name_of(status.activity)},
          {"reason", text_or_null(status.reason)},
          {"silent_seconds", json_of(status.silent)},
          {"job", text_or_null(status.holder)},
          {"jobs", json_of(status.jobs)},
          {"model", text_or_null(status.model)},
          {"ranks", json_of(status.ranks)},
          {"nodes", json_of(status.nodes)},
          {"hosts", text_or_null(status.hosts)},
          {"device", text_or_null(status.device)},
          {"version", text_or_null(status.version)},
          {"step", json_of(status.step)},
          {"steps", json_of(status.steps)},
          {"epoch", json_of(status.epoch)},
          {"epochs", json_of(status.epochs)},
          {"seconds_left", json_of(status.seconds_left)},
          {"loss", json_of(status.loss)},
          {"top1", json_of(status.top1)},
          {"lr", json_of(status.lr)},
          {"images_per_second", json_of(status.images_per_second)},
          {"gradient_norm", json_of(status.gradient_norm)},
          {"last_losses", array_of(status.last_losses)},
          {"first_not_finite", json_of(status.first_not_finite)},
          {"validation",
           {{"loss", json_of(status.validation_loss)},
            {"top1", json_of(status.validation_top1)},
            {"ema_top1", json_of(status.validation_ema_top1)},
            {"best_top1", json_of(status.best_top1)},
            {"best_step", json_of(status.best_step)},
            {"top1s", array_of(status.validation_top1s)}}},
          {"step_seconds", seconds_json(status)},
          {"slowest", slowest_json(status.slowest)},
          {"memory",
           {{"planned_bytes", json_of(status.planned_bytes)},
            {"peak_rss_bytes", json_of(status.peak_rss)}}},
          {"checkpoint", checkpoint_json(status)},
          {"restarts",
           {{"count", status.restarts.count}, {"last", text_or_null(status.restarts.last)}}},
          {"notes", status.notes}};
}

}  // namespace lockstep::report
