#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct WatchdogOptions {
  std::chrono::duration<double> limit{600};  ///< without progress of any rank; 0: off
  std::vector<std::string> names;            ///< by rank, until name_ranks(): "rank 3 (node7)"
  std::vector<int> cores = {};               ///< where its thread may run; empty: anywhere
  /// Connections of one rank, at most, to those below it: 4,000 ranks are two levels.
  int fan_out = 64;
  /// How long the others may still make steps after a rank is gone.
  std::chrono::duration<double> loss_limit{10};
  /// Ends the job once its reason is told; empty: abort_job(70). On a thread of the watchdog's.
  std::function<void()> end_job = {};
  /// The interface that its connections use: names, or networks as "10.1.0.0/16", with commas
  /// between; empty: any. Error(usage) where a host has none of them.
  std::string interface = {};
  /// For tests: called by the watchdog's thread some times a limit.
  std::function<void()> on_tick = {};
};

/// How long anything may wait for other ranks before it fails by itself: so long that a watchdog of
/// this limit always speaks first, which can say who is late. For ever where there is none.
[[nodiscard]] std::chrono::milliseconds wait_limit_beside(
    std::chrono::duration<double> limit) noexcept;

/// Notices ranks that hang or die. A thread on each rank looks at the rank's board and tells the
/// others' of it over TCP connections of its own, which form a tree: training makes no call for it.
/// Time in which this rank's process was stopped counts for nothing.
///
/// Once no rank has made progress for the limit (three times that in start-up and in a run's first
/// step), every rank logs who is late, where, since when, and what the others wait for; then the
/// job ends. A rank that ends is named at once, and the job ends if it stands still; a connection
/// that breaks is made anew. The ranks prove to each other that they know the job's secret.
/// A watchdog that fails stops those of all ranks, with a warning; the job goes on.
class Watchdog final {
 public:
  using Log = std::function<void(const std::string&)>;

  /// Collective. `comm` is used here alone; `board` outlives it.
  Watchdog(Communicator& comm, const ProcessGrid& grid, PhaseBoard& board, WatchdogOptions options);
  ~Watchdog();  ///< says goodbye to the others' watchdogs
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// What each rank is called from now on: "rank 3 (node7, NVIDIA H200)". The same on all ranks.
  void name_ranks(std::vector<std::string> names);
  /// Where this rank's lines go from now on, besides the standard error of the rank that finds a
  /// fault. Called on a thread of the watchdog's, which it may block; empty: nowhere.
  void log_to(Log log);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
