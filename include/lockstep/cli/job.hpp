#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/start_clock.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep {

class Watchdog;

/// Everything one process of a job owns, in construction order: MPI, the communicator, the process
/// grid, the thread binding.
class Job final {
 public:
  Job(int& argc, char**& argv);

  [[nodiscard]] Communicator& comm() noexcept { return *comm_; }
  [[nodiscard]] const ProcessGrid& grid() const noexcept { return grid_; }
  [[nodiscard]] bool is_first() const noexcept { return grid_.rank == 0; }
  /// Pins this rank's threads, once; `requested` 0: the affinity mask's share. Collective.
  const ThreadBinding& bind(int requested);
  /// Of the start so far; the program's next phase begins.
  [[nodiscard]] StartClock& start_clock() noexcept { return start_clock_; }
  /// Keeps the watchdog of a run that failed until the job's end.
  void keep(std::shared_ptr<Watchdog> watchdog) noexcept { watchdog_ = std::move(watchdog); }
  [[nodiscard]] Watchdog* watchdog() noexcept { return watchdog_.get(); }  ///< null: none was kept

 private:
  StartClock start_clock_;
  MpiEnvironment environment_;
  std::unique_ptr<Communicator> comm_;
  ProcessGrid grid_;
  std::optional<ThreadBinding> binding_;
  std::shared_ptr<Watchdog> watchdog_;
};

struct JobOptions {
  bool may_resume = false;    ///< errors end with advice_after() their status
  bool for_all_ranks = true;  ///< warn if fewer ranks run than the launcher started or the
                              ///< scheduler's allocation has tasks
};

/// Runs a subcommand that uses MPI on every rank and handles its end. If `body` throws on some
/// ranks and all ranks finish within a few seconds, the lowest failed rank prints, and all finalize
/// and return its status. Otherwise the job is aborted, and one rank prints why if possible. A
/// start of MPI that takes minutes is told, and one that never ends is ended.
[[nodiscard]] ExitStatus run_job(int& argc, char**& argv,
                                 const std::function<ExitStatus(Job&)>& body,
                                 const JobOptions& options = {});

/// One line "lockstep: error: ..." on standard error, without what could control a terminal.
void print_error(const std::string& message);
/// The same with "warning".
void print_warning(const std::string& message);

}  // namespace lockstep
