#include "lockstep/run/restart_decision.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/exit_advice.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

int counted_status(const RanksEnd& end) {
  constexpr int stopped = static_cast<int>(ExitStatus::stopped);
  constexpr int internal = static_cast<int>(ExitStatus::internal);
  if (end.status != 0 || end.logged == LoggedEnd::finished) return end.status;
  if (end.logged == LoggedEnd::nothing) return end.asked_to_stop ? stopped : internal;
  if (!end.requires_logged_end) return end.status;
  return end.logged == LoggedEnd::stopped ? stopped : internal;
}

/// Whether the status is that of a restart within a job, and not of the run: the global batch
/// cannot be divided over fewer ranks, or the lock of the earlier ranks was still held. A new job
/// has neither problem.
bool is_of_relaunch(int status, Relaunch relaunch) {
  switch (static_cast<ExitStatus>(status)) {
    case ExitStatus::usage:
      return relaunch == Relaunch::fewer;
    case ExitStatus::cannot_write:
      return relaunch != Relaunch::none;
    default:
      return false;
  }
}

std::string refusal(const RestartDecision& decision, const RanksEnd& end,
                    const RestartLimits& limits, const RestartCounts& earlier,
                    const std::string& checkpoint) {
  const int status = decision.status;
  if (status == 0) return ": the run is done";
  if (!decision.resumes) {
    return fmt::format(": the same command cannot resume after status {} (docs/exit-status.md)",
                       status);
  }
  if (limits.restarts == 0) return ": no restart is allowed (max_restarts=0)";
  if (earlier.all >= limits.restarts) {
    return fmt::format(" after {} restarts (max_restarts={})", earlier.all, limits.restarts);
  }
  if (decision.unlogged && earlier.unlogged > 0) {
    return ": again no rank has written to its log";
  }
  // A preemption says nothing about the run.
  if (!end.preempted && earlier.stalled > limits.stalled) {
    return fmt::format(" and still at checkpoint {} after {} restarts (stalled_restarts={})",
                       checkpoint, earlier.stalled, limits.stalled);
  }
  if (decision.crashed && earlier.crashed >= limits.crashes) {
    return fmt::format(
        ": a rank crashed or ran out of memory again, after {} restarts for that reason "
        "(crash_restarts={})",
        earlier.crashed, limits.crashes);
  }
  return {};
}

}  // namespace

RestartDecision decide_restart(const RanksEnd& end, const RestartLimits& limits,
                               const RestartCounts& earlier, const std::string& checkpoint) {
  RestartDecision decision{.status = counted_status(end)};
  decision.crashed =
      is_crash(decision.status) || (end.out_of_memory && may_lack_memory(decision.status));
  decision.resumes =
      resumes_after_launcher(decision.status) || is_of_relaunch(decision.status, end.relaunch);
  const bool stopped = decision.status == static_cast<int>(ExitStatus::stopped);
  decision.unlogged = end.logged == LoggedEnd::nothing && !end.asked_to_stop && !stopped;
  // A run that was stopped on request gives back the nodes.
  decision.in_job = resumes_after_launcher(decision.status) && !end.asked_to_stop && !stopped;
  decision.refusal = refusal(decision, end, limits, earlier, checkpoint);
  decision.progress = fmt::format(" at checkpoint {}: restart {} of at most {}", checkpoint,
                                  earlier.all + 1, limits.restarts);
  return decision;
}

}  // namespace lockstep
