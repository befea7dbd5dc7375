#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/health/slurm_time.hpp"
#include "lockstep/health/stop_timer.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

/// When a run must end.
struct TimeAllowed {
  std::optional<StopTimer::Clock::time_point> end;  ///< nullopt: no limit
  std::string source;                               ///< of the end: "--time-limit", "Slurm job 7"
  std::vector<std::string> problems;                ///< why Slurm's end is unknown or not used
};

/// When to ask Slurm for a job's end. An answer costs its controller little; thousands of jobs may
/// ask, one rank each.
struct AskTimes {
  std::chrono::duration<double> interval = std::chrono::minutes(5);
  /// Shortly before the run would stop, so that a raised limit prevents it.
  std::chrono::duration<double> window = std::chrono::minutes(1);
  std::chrono::duration<double> interval_in_window = std::chrono::seconds(10);
  /// For the first answer, when the run starts.
  std::chrono::duration<double> patience = std::chrono::seconds(10);
};
/// Whether to ask again. `due`: when the run will stop because of Slurm's end; nullopt: it has
/// none.
[[nodiscard]] bool asks_now(StopTimer::Clock::time_point now, StopTimer::Clock::time_point asked,
                            std::optional<StopTimer::Clock::time_point> due,
                            const AskTimes& times) noexcept;

struct JobEndOptions {
  StopTimer::Clock::time_point begin;  ///< of the run
  double limit = 0;                    ///< seconds after `begin`; 0: none
  std::string job = {};                ///< Slurm's; empty: none
  VariableTime variables = {};         ///< used if Slurm does not answer
  std::function<SlurmAnswer(const std::stop_token&)> ask = {};
  std::vector<int> cores = {};  ///< for the thread that asks; empty: the caller's
  AskTimes times = {};
};

/// The end of the run, which the scheduler may change at any time. A thread asks Slurm; one rank of
/// a run has such an object.
class JobEnd final {
 public:
  explicit JobEnd(JobEndOptions options);

  /// Waits a little for the first answer.
  [[nodiscard]] TimeAllowed allowed();
  /// Call before a decision to stop; does not wait. Sets the timer's end by the newest answer, and
  /// has Slurm asked again if that is due. Returns what has changed; empty: nothing.
  [[nodiscard]] std::string update(StopTimer::Clock::time_point now, StopTimer& timer,
                                   const StopTimer::Ahead& ahead);

 private:
  using Clock = StopTimer::Clock;
  struct Answer {
    SlurmAnswer slurm;
    Clock::time_point at;
  };

  void work(const std::stop_token& stop);
  /// What changes by an answer; empty: nothing.
  [[nodiscard]] std::string take(const Answer& answer);
  [[nodiscard]] std::optional<Clock::time_point> end() const;

  JobEndOptions options_;
  std::optional<Clock::time_point> option_end_;
  std::optional<Clock::time_point> slurm_end_;
  bool by_variable_ = false;  ///< slurm_end_ is
  Clock::time_point asked_at_;

  std::mutex mutex_;  ///< guards the next three
  std::condition_variable_any changed_;
  bool asks_ = false;
  std::optional<Answer> answer_;
  std::jthread thread_;  ///< last, so stopped first
};

/// What the run is told at its start about its time.
struct TimeAdvice {
  std::string refusal;  ///< empty: none
  std::vector<std::string> warnings;
};
struct TimeNeeds {
  double left = 0;  ///< seconds to the end
  double save = 0;  ///< seconds to save, assumed
  double stop = 0;  ///< StopTimer::needed() at the start
};
/// Compares the time left with what a step, a save and the end take, and with --save-every.
[[nodiscard]] TimeAdvice advise_on_time(const TimeAllowed& allowed, const TimeNeeds& needs,
                                        const SaveInterval& save_every);

/// "2026-11-28 23:10:05", local time.
[[nodiscard]] std::string clock_text(StopTimer::Clock::time_point at);

}  // namespace lockstep
