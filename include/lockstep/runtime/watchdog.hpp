#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct WatchdogOptions {
  std::chrono::duration<double> limit{600};  ///< maximum time without progress; 0: disabled
  std::vector<std::string> names;            ///< by rank, until name_ranks(): "rank 3 (node7)"
  std::vector<int> cores = {};               ///< cores for its threads; empty: any
  /// Maximum number of children of a rank on its node, and of a node's first rank on other nodes.
  int fan_out = 64;
  /// After a rank is gone, ends the job once the others make no progress for this long.
  std::chrono::duration<double> loss_limit{10};
  /// Ends the job after the reason is logged; empty: abort_job(). Called on a watchdog thread.
  std::function<void(ExitStatus)> end_job = {};
  /// Interface for its connections: a comma-separated list of names or networks such as
  /// "10.1.0.0/16"; empty: any. Error(usage) if a host has none of them.
  std::string interface = {};
  /// For tests: called by the watchdog's thread several times per limit.
  std::function<void()> on_tick = {};
};

/// Limit for other waits on ranks. It is long enough that a watchdog with `limit`, which can name
/// the late rank, always reports first. Practically infinite if the watchdog is disabled.
[[nodiscard]] std::chrono::milliseconds wait_limit_beside(
    std::chrono::duration<double> limit) noexcept;

/// Detects ranks that hang or die. A thread on each rank reads the rank's board and reports it to
/// the other watchdogs over a tree of separate TCP connections; training makes no calls for it.
/// Time during which this rank's process was suspended does not count.
///
/// If no rank makes progress for the limit (three times the limit in start-up and in a run's first
/// step), every rank logs who is late, where, since when, and what the others wait for; then the
/// job ends. A rank that dies is named at once, and the job ends if it makes no further progress. A
/// broken connection is re-established. Ranks authenticate each other with a secret of the job.
/// If a watchdog fails, the watchdogs of all ranks stop with a warning, and the job continues.
class Watchdog final {
 public:
  using Log = std::function<void(const std::string&)>;

  /// Collective. `comm` is used only in the constructor; `board` must outlive it.
  Watchdog(Communicator& comm, const ProcessGrid& grid, PhaseBoard& board, WatchdogOptions options);
  ~Watchdog();  ///< tells the other watchdogs that this rank leaves
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Sets the ranks' names for messages: "rank 3 (node7, NVIDIA H200)". The same on all ranks.
  void name_ranks(std::vector<std::string> names);
  /// Sets the log for this rank's lines; empty: none. The rank that finds a fault also prints it to
  /// standard error. `log` is called on a watchdog thread and may block.
  void log_to(Log log);

  /// Ends the job because this rank cannot go on. Of all ranks that fail, one prints the reason:
  /// the loss of a rank, or the first failure; so a loss that makes many ranks fail gives one
  /// message. Blocks until the reason is known. False if no watchdog decides: the caller must print
  /// and end.
  [[nodiscard]] bool end_job(ExitStatus status, const std::string& why);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
