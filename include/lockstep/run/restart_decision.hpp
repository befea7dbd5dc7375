#pragma once

#include "lockstep/run/rank_logs.hpp"
#include "lockstep/run/restart_record.hpp"

#include <cstdint>
#include <string>

/// Whether a job script starts a run's ranks again after they have ended. Pure.
namespace lockstep {

/// Whether the ranks that ended had been started again within their job.
enum class Relaunch {
  none,
  same,   ///< on as many nodes as at first
  fewer,  ///< on fewer
};

struct RanksEnd {
  int status = 0;  ///< the launcher's
  /// The launcher may return 0 for ranks that were stopped or lost: MPICH's mpirun after a signal
  /// that it forwarded, Open MPI 5's after a node died, srun if it does not wait for all ranks.
  bool requires_logged_end = false;
  bool asked_to_stop = false;  ///< by a signal to the script
  bool out_of_memory = false;  ///< as the scheduler reports
  bool preempted = false;      ///< as the scheduler reports
  Relaunch relaunch = Relaunch::none;
  LoggedEnd logged = LoggedEnd::unfinished;
};

struct RestartLimits {
  std::int64_t restarts = 50;  ///< of a submission
  std::int64_t stalled = 1;    ///< in a row without a newer checkpoint
  std::int64_t crashes = 2;    ///< after a rank crashed or ran out of memory
};

/// The texts follow "status N", to which a caller may add why the ranks ended.
struct RestartDecision {
  int status = 0;             ///< that counts: not the launcher's 0 if the run has not finished
  bool crashed = false;       ///< or out of memory
  bool resumes = false;       ///< the same command may go on after this status
  bool unlogged = false;      ///< no rank has logged anything, and none has stopped
  bool in_job = false;        ///< restarting the ranks within the job may help
  std::string refusal = {};   ///< why the run must not be started again; empty: it may
  std::string progress = {};  ///< " at checkpoint none: restart 1 of at most 50"
};

/// `earlier`: the restarts of the submission. `checkpoint`: the run's newest; "none".
[[nodiscard]] RestartDecision decide_restart(const RanksEnd& end, const RestartLimits& limits,
                                             const RestartCounts& earlier,
                                             const std::string& checkpoint);

}  // namespace lockstep
