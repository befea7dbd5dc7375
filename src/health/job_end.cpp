#include "lockstep/health/job_end.hpp"

#include "lockstep/core/units.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <utility>

namespace lockstep {
namespace {

using Clock = StopTimer::Clock;
using Kind = SlurmAnswer::Kind;

constexpr const char* option_name = "--time-limit";
constexpr const char* end_variable = "SLURM_JOB_END_TIME";
/// Answers are whole seconds and take time; a limit is changed by minutes.
constexpr double least_change = 15;

Clock::time_point after(Clock::time_point from, double seconds) {
  return from + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_until(Clock::time_point end) {
  return std::chrono::duration<double>(end - Clock::now()).count();
}

/// Spreads the questions of jobs that started together, such as an array's.
double spread(const std::string& job) {
  constexpr double golden = 0.6180339887498949;
  const double number = std::strtod(job.c_str(), nullptr) * golden;
  return 0.9 + 0.2 * (number - std::floor(number));
}

}  // namespace

std::string clock_text(Clock::time_point at) {
  const auto wall =
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(at - Clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(wall)));
}

bool asks_now(Clock::time_point now, Clock::time_point asked, std::optional<Clock::time_point> due,
              const AskTimes& times) noexcept {
  if (now - asked >= times.interval) return true;
  return due && now + times.window >= *due && now - asked >= times.interval_in_window;
}

JobEnd::JobEnd(JobEndOptions options) : options_(std::move(options)) {
  if (options_.limit > 0) option_end_ = after(options_.begin, options_.limit);
  if (options_.job.empty()) return;
  options_.times.interval *= spread(options_.job);
  asks_ = true;
  asked_at_ = Clock::now();
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

void JobEnd::work(const std::stop_token& stop) {
  become_background_thread(options_.cores);
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return asks_; })) {
    lock.unlock();
    SlurmAnswer slurm;
    try {
      slurm = options_.ask(stop);
    } catch (const std::exception& error) {
      slurm.text = error.what();
    }
    lock.lock();
    answer_ = Answer{.slurm = std::move(slurm), .at = Clock::now()};
    asks_ = false;
    changed_.notify_all();
  }
}

std::optional<Clock::time_point> JobEnd::end() const {
  if (!slurm_end_ || !option_end_) return slurm_end_ ? slurm_end_ : option_end_;
  return std::min(*slurm_end_, *option_end_);
}

TimeAllowed JobEnd::allowed() {
  TimeAllowed allowed;
  std::string source = option_name;
  if (thread_.joinable()) {
    const std::string job = "Slurm job " + options_.job;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, options_.times.patience, [this] { return answer_.has_value(); });
    Answer answer = std::exchange(answer_, std::nullopt).value_or(Answer{});
    SlurmAnswer& slurm = answer.slurm;
    if (slurm.kind == Kind::ends) slurm_end_ = after(answer.at, slurm.seconds_left);
    if (slurm.kind == Kind::unknown_job) {
      allowed.problems.push_back(
          fmt::format("Slurm knows no running job {} (SLURM_JOB_ID is left over from a job that "
                      "has ended); submit the run, or give --time-limit if it must end at a time",
                      options_.job));
    }
    if (slurm.kind == Kind::none) {
      if (slurm.text.empty()) {
        slurm.text = fmt::format("nothing for {:.0f} s", options_.times.patience.count());
      }
      const VariableTime& variables = options_.variables;
      if (!variables.problem.empty()) allowed.problems.push_back(variables.problem);
      by_variable_ = variables.seconds_left.has_value();
      if (by_variable_) slurm_end_ = after(Clock::now(), *variables.seconds_left);
      allowed.problems.push_back(fmt::format(
          "Slurm does not tell how long job {} may run (squeue says '{}'; it is asked again); {}",
          options_.job, slurm.text,
          by_variable_ ? "until it answers, SLURM_JOB_END_TIME counts"
                       : "give --time-limit, so that the run saves and stops in time"));
    }
    if (slurm_end_ && end() == slurm_end_) source = by_variable_ ? end_variable : job;
  }
  allowed.end = end();
  if (allowed.end) allowed.source = source;
  return allowed;
}

std::string JobEnd::take(const Answer& answer) {
  const SlurmAnswer& slurm = answer.slurm;
  // A job that runs has an end, even if Slurm does not answer for a while.
  if (slurm.kind == Kind::none || slurm.kind == Kind::unknown_job) return {};
  const auto before = slurm_end_;
  const bool was_variable = std::exchange(by_variable_, false);
  slurm_end_.reset();
  if (slurm.kind == Kind::ends) slurm_end_ = after(answer.at, slurm.seconds_left);
  if (!before && !slurm_end_) return {};
  const std::string job = "time: Slurm job " + options_.job;
  const char* option =
      option_end_ && end() == option_end_ ? "; --time-limit ends the run before" : "";
  if (!slurm_end_) {
    return fmt::format("{} has no time limit now (it was to end at {}){}", job, clock_text(*before),
                       option);
  }
  const std::string now = fmt::format("{} ({} left)", clock_text(*slurm_end_),
                                      format_duration(seconds_until(*slurm_end_)));
  if (!before) return fmt::format("{} ends at {}{}", job, now, option);
  const double change = std::chrono::duration<double>(*slurm_end_ - *before).count();
  if (std::abs(change) < least_change) return {};
  const char* cause = was_variable ? "SLURM_JOB_END_TIME was wrong"
                      : change > 0 ? "its limit was raised"
                                   : "its limit was lowered";
  return fmt::format("{} ends at {}, not at {} ({}){}", job, now, clock_text(*before), cause,
                     option);
}

std::string JobEnd::update(Clock::time_point now, StopTimer& timer, const StopTimer::Ahead& ahead) {
  if (!thread_.joinable()) return {};
  std::string change;
  const std::lock_guard lock(mutex_);
  if (const auto answer = std::exchange(answer_, std::nullopt)) {
    change = take(*answer);
    timer.set_end(end());
  }
  std::optional<Clock::time_point> due;
  if (slurm_end_ && end() == slurm_end_) {
    // One step more, so that Slurm is asked before the last one, however long steps are.
    due = after(*slurm_end_, -timer.needed({.saving = ahead.saving, .steps = ahead.steps + 1}));
  }
  if (!asks_ && asks_now(now, asked_at_, due, options_.times)) {
    asks_ = true;
    asked_at_ = now;
    changed_.notify_all();
  }
  return change;
}

TimeAdvice advise_on_time(const TimeAllowed& allowed, const TimeNeeds& needs,
                          const SaveInterval& save_every) {
  TimeAdvice advice;
  if (!allowed.end) return advice;
  const bool by_option = allowed.source == option_name;
  const char* const remedy =
      by_option ? "give a longer --time-limit" : "submit with a longer --time";
  const std::string left = format_duration(std::max(needs.left, 0.0));
  // Nobody kills a run at the end of its option, and the variable may be another job's.
  const bool is_killed = !by_option && allowed.source != end_variable;
  if (is_killed && needs.left <= StopTimer::end_reserve) {
    advice.refusal = fmt::format(
        "{} left until {} ends the run (the ranks need {:.0f} s to end, so no step would be kept); "
        "{}",
        left, allowed.source, StopTimer::end_reserve, remedy);
    return advice;
  }
  if (needs.left <= needs.stop) {
    advice.warnings.push_back(fmt::format(
        "{} left until {} ends the run, and stopping may take {} (a save is assumed to take {:.0f} "
        "s until one is measured), so the run stops after its first step; {}",
        left, allowed.source, format_duration(needs.stop), needs.save, remedy));
    return advice;
  }
  if (save_every.seconds >= needs.left) {
    advice.warnings.push_back(
        fmt::format("--save-every {} is longer than the {} left (a node that fails costs all of "
                    "this job's steps); save more often",
                    format_duration(save_every.seconds), left));
  }
  return advice;
}

}  // namespace lockstep
