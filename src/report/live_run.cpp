#include "lockstep/report/live_run.hpp"

#include "events_reader.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/run_holder.hpp"
#include "lockstep/core/text_file.hpp"

#include <sys/stat.h>

#include <cmath>
#include <sstream>
#include <utility>

namespace lockstep::report {
namespace {

/// Evaluations up to twice this number are shown singly.
constexpr std::size_t most_bins = 1000;

/// Unix time of the last change; NaN if there is no such file.
double changed(const FilePath& path) {
  struct stat status {};
  if (!path.get_status(status)) return unknown;
  return static_cast<double>(status.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

std::optional<RunFiles::Checkpoint> latest_checkpoint(const OpenDirectory& run) {
  const std::string name = name_behind(run / "checkpoints/latest");
  const double time = changed(run / ("checkpoints/" + name));
  if (name.empty() || std::isnan(time)) return std::nullopt;
  return RunFiles::Checkpoint{.name = name, .time = time};
}

/// The job scripts append a line for each restart: job, status, checkpoint, time, and more words.
RunFiles::Restarts read_restarts(const OpenDirectory& run) {
  RunFiles::Restarts restarts;
  const FilePath file = run / "restarts";
  if (!file.exists()) return restarts;
  std::istringstream lines(read_text_file(file));
  for (std::string line; std::getline(lines, line);) {
    ++restarts.count;
    restarts.last = line.substr(line.find(' ') + 1);
  }
  return restarts;
}

}  // namespace

struct LiveRun::Reading {
  explicit Reading(const std::string& path)
      : files(path), run(most_bins), events(run, files / "metrics.jsonl") {
    run.path = path;
    run.name = run_name(path);
  }
  OpenDirectory files;
  RunRecord run;
  EventsReader events;
};

LiveRun::LiveRun(std::string path) : path_(std::move(path)) {
  require_run(path_);
  reading_ = std::make_unique<Reading>(path_);
}

LiveRun::~LiveRun() = default;

void LiveRun::read_events(double now) {
  const std::int64_t before = reading_->events.lines();
  while (!reading_->files.is_current() || !reading_->events.read())
    reading_ = std::make_unique<Reading>(path_);
  if (std::isnan(arrived_)) {
    const double last = reading_->run.last_time;
    arrived_ = std::fmin(now, std::isnan(last) ? changed(reading_->files / "metrics.jsonl") : last);
  } else if (reading_->events.lines() != before) {
    arrived_ = now;  // not the event's time, since clocks of hosts may differ
  }
}

std::optional<RunFiles::Lock> LiveRun::read_lock(double now) {
  const FilePath path = reading_->files / "lock";
  const double time = changed(path);
  if (std::isnan(time)) return std::nullopt;
  if (time != lock_time_) {
    // Later not the file's time, since clocks of hosts may differ.
    heartbeat_ = std::isnan(lock_time_) ? std::fmin(now, time) : now;
    lock_time_ = time;
  }
  const std::string content = read_text_file(path);
  return RunFiles::Lock{.holder = content.empty() ? "" : name_of(parse_run_holder(content)),
                        .heartbeat = heartbeat_};
}

RunStatus LiveRun::update(double now) {
  RunFiles files;
  std::vector<std::string> problems;
  const auto attempt = [&](auto read) {
    try {
      read();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  // First: a job writes its last event before it gives up the lock.
  attempt([&] { files.lock = read_lock(now); });
  attempt([&] { read_events(now); });
  attempt([&] { files.restarts = read_restarts(reading_->files); });
  files.latest = latest_checkpoint(reading_->files);
  files.arrived = std::isnan(arrived_) ? now : arrived_;
  RunRecord& run = reading_->run;
  // Each job may change it.
  attempt([&] { run.options = parse_options(read_text_file(reading_->files / "config.ini")); });
  run.notes = reading_->events.notes();
  run.notes.insert(run.notes.end(), problems.begin(), problems.end());
  return status_of(run, files, now);
}

}  // namespace lockstep::report
