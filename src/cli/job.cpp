#include "lockstep/cli/job.hpp"

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/address_space.hpp"
#include "lockstep/core/current_error.hpp"
#include "lockstep/core/exit_advice.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/print.hpp"
#include "lockstep/runtime/launch.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/start_alarm.hpp"
#include "lockstep/runtime/watchdog.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <thread>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a failed rank waits for the others to fail too.
constexpr auto failure_timeout = std::chrono::seconds(5);

/// Agreement of all ranks on how the job ends. Uses a separate communicator, so it cannot match a
/// collective that other ranks are still in.
class ShutdownAgreement final {
 public:
  ShutdownAgreement() { MPI_Comm_dup(MPI_COMM_WORLD, &comm_); }
  ShutdownAgreement(const ShutdownAgreement&) = delete;
  ShutdownAgreement& operator=(const ShutdownAgreement&) = delete;
  ~ShutdownAgreement() {
    if (complete_) MPI_Comm_free(&comm_);
  }

  /// The lowest rank with a status other than ok, and that status; ok if there is none. nullopt if
  /// not all ranks arrive by the deadline.
  struct Verdict {
    int rank = -1;
    ExitStatus status = ExitStatus::ok;
  };
  std::optional<Verdict> agree(int rank, ExitStatus status, Clock::time_point deadline) {
    constexpr int statuses = 256;
    constexpr int all_well = std::numeric_limits<int>::max();
    mine_ = status == ExitStatus::ok ? all_well : rank * statuses + static_cast<int>(status);
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Iallreduce(&mine_, &lowest_, 1, MPI_INT, MPI_MIN, comm_, &request) != MPI_SUCCESS) {
      return std::nullopt;
    }
    for (int done = 0; done == 0;) {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return std::nullopt;
      if (done != 0) break;
      if (Clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    complete_ = true;
    if (lowest_ == all_well) return Verdict{};
    return Verdict{.rank = lowest_ / statuses,
                   .status = static_cast<ExitStatus>(lowest_ % statuses)};
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int mine_ = 0;
  int lowest_ = 0;
  bool complete_ = false;
};

/// The result of `body` on this rank.
struct Outcome {
  ExitStatus status = ExitStatus::ok;
  std::string message;  ///< empty: `body` returned
};

Outcome run_body(Job& job, const std::function<ExitStatus(Job&)>& body) {
  try {
    return {.status = body(job), .message = {}};
  } catch (...) {
    const Error error = current_error();
    return {.status = error.status(), .message = error.what()};
  }
}

/// Ends the job while other ranks hang or are lost. Many ranks may call this at the same time.
[[noreturn]] void end_without_agreement(Job& job, ExitStatus status, const std::string& why,
                                        const std::string& advice) {
  // The rank that decides aborts the job.
  constexpr auto abort_timeout = std::chrono::seconds(15);
  if (job.watchdog() != nullptr && job.watchdog()->end_job(status, why)) {
    std::this_thread::sleep_for(abort_timeout);
  } else {
    // One after another, since the first one's abort ends the others.
    std::this_thread::sleep_for(std::chrono::milliseconds(500) * std::min(job.grid().rank, 20));
    print_error(fmt::format("rank {} on {}: {}{}", job.grid().rank, job.grid().host, why, advice));
  }
  abort_job(static_cast<int>(status));
}

/// What MPI, oneDNN and helper threads map in the smallest run.
constexpr std::uint64_t least_address_space = std::uint64_t{176} << 20;

/// Checks a limit of memory before MPI starts, which would end the process without a message.
/// Nothing is collective then: the first process prints, and the others give it time to.
std::optional<ExitStatus> refuse_small_limit() {
  try {
    require_address_space(least_address_space, "to start");
    return std::nullopt;
  } catch (const Error& error) {
    if (rank_before_start() == 0) {
      print_error(error.what());
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    return error.status();
  }
}

/// Refuses to join a launcher that has ended: MPI would end the process, or hang.
std::optional<ExitStatus> refuse_ended_launcher(const JobOptions& options) {
  std::size_t count = 0;
  while (environ[count] != nullptr) ++count;
  const std::string ended = ended_launcher(std::span<const char* const>(environ, count));
  if (ended.empty()) return std::nullopt;
  print_error(
      fmt::format("the launcher named in the environment has ended ({}; left over from a shell "
                  "inside mpirun or srun); start with mpirun or srun, or in a new shell{}",
                  ended, options.may_resume ? " " + advice_after(ExitStatus::usage) : ""));
  return ExitStatus::usage;
}

std::string place_text(const LaunchFacts& launch) {
  if (!launch.started) return "";
  return fmt::format("; this is process {} of {} by {}", launch.process, *launch.started,
                     launcher_text(launch.launcher));
}

/// Tells that MPI waits, once for each node: on rank 0's first, since the others may be absent.
StartAlarmOptions start_alarm_options(const LaunchFacts& launch) {
  StartAlarmOptions options;
  const auto text = [launch](std::chrono::duration<double> waited) {
    return fmt::format(
        "MPI has not started within {:.0f} s on {} (it waits for every process of the launcher{}); "
        "lockstep doctor names nodes that do not answer; in a shell inside srun or mpirun, start "
        "with srun or mpirun, or in a new shell",
        waited.count(), host_name(), place_text(launch));
  };
  if (launch.process != 0) options.notice *= 2;
  options.tell = [launch, text, waited = options.notice] {
    if (launch.process == 0 || launch.local_process == 0) print_warning(text(waited));
  };
  options.end = [launch, text, waited = options.limit] {
    if (launch.process == 0 || launch.local_process == 0) print_error(text(waited));
    std::_Exit(static_cast<int>(ExitStatus::internal));
  };
  return options;
}

/// Nothing is collective before MPI starts: the first process prints.
void leave_missing_directories() {
  for (const std::string& variable : unset_missing_directories()) {
    if (rank_before_start() != 0) continue;
    print_warning(fmt::format("{} is no directory on {}; MPI keeps its files in /tmp there",
                              variable, host_name()));
  }
}

void warn_of_launch(const LaunchFacts& launch, const Job& job) {
  if (!job.is_first()) return;
  const auto problem = judge_launch(launch, job.grid().world_size, mpi_library());
  // Of processes that are worlds of their own, the first one prints.
  if (problem && (launch.process == 0 || launch.left_over)) print_warning(problem->text);
}

}  // namespace

Job::Job(int& argc, char**& argv) : start_clock_("MPI"), environment_(argc, argv) {
  start_clock_.enter("ranks");
  comm_ = make_mpi_communicator();
  grid_ = make_process_grid();
}

const ThreadBinding& Job::bind(int requested) {
  if (!binding_) binding_ = bind_threads(grid_, *comm_, requested);
  return *binding_;
}

void print_error(const std::string& message) {
  print_err("lockstep: error: {}\n", message);
}

void print_warning(const std::string& message) {
  print_err("lockstep: warning: {}\n", message);
}

ExitStatus run_job(int& argc, char**& argv, const std::function<ExitStatus(Job&)>& body,
                   const JobOptions& options) {
  if (const auto refused = refuse_small_limit()) return *refused;
  if (const auto refused = refuse_ended_launcher(options)) return *refused;
  leave_missing_directories();
  const LaunchFacts launch = launch_of_this_process();
  std::optional<StartAlarm> alarm(start_alarm_options(launch));
  Job job(argc, argv);
  alarm.reset();
  if (options.for_all_ranks) warn_of_launch(launch, job);
  ShutdownAgreement shutdown;
  const Outcome outcome = run_body(job, body);
  std::fflush(stdout);
  const bool failed = !outcome.message.empty();
  const auto deadline = failed ? Clock::now() + failure_timeout : Clock::time_point::max();
  const auto verdict = shutdown.agree(job.grid().rank, outcome.status, deadline);
  const auto advice = [&](ExitStatus status) {
    return options.may_resume ? fmt::format(" {}", advice_after(status)) : std::string();
  };
  if (!verdict) {
    const ExitStatus status = failed ? outcome.status : ExitStatus::internal;
    end_without_agreement(job, status, failed ? outcome.message : "the other ranks were lost",
                          advice(status));
  }
  if (verdict->rank == job.grid().rank && failed) {
    print_error(outcome.message + advice(verdict->status));
  }
  return verdict->status;
}

}  // namespace lockstep
