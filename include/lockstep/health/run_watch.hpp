#pragma once

#include "lockstep/comm/checked_communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/runtime/watchdog.hpp"

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The job to watch.
struct WatchedJob {
  Communicator& comm;
  const ProcessGrid& grid;
  const std::vector<int>& cores;  ///< of this rank
};

/// Fault detection for a run: the board with this rank's phase, the watchdog that reads it,
/// comparison and tracing of collectives, and the wait for a debugger.
class RunWatch final {
 public:
  /// Collective. The job's references and `trace`, which may be null, outlive it.
  RunWatch(const Config& config, const WatchedJob& job, TraceRecorder* trace);
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;
  ~RunWatch();

  /// The job's communicator, watched.
  [[nodiscard]] Communicator& comm() noexcept { return *comm_; }
  using Callers = CollectiveComparison::Callers;
  /// Wraps another communicator; returns comm() unchanged. `inner` outlives the use of the result.
  [[nodiscard]] Communicator& watched(Communicator& inner, const char* name,
                                      Callers callers = Callers::all);
  /// Collective: from now on, ranks compare their collectives within groups of `group_size` first.
  void compare_in_groups(int group_size);
  [[nodiscard]] PhaseBoard& board() noexcept { return pair_->board; }
  /// By rank.
  [[nodiscard]] const std::vector<std::string>& hosts() const noexcept { return hosts_; }
  /// Collective: `mine` is this rank's device, empty for the CPU.
  void name_devices(const std::string& mine);
  [[nodiscard]] Watchdog& watchdog() noexcept { return *pair_->watchdog; }
  /// The watchdog may outlive this object.
  [[nodiscard]] std::shared_ptr<Watchdog> share_watchdog() const {
    return {pair_, &*pair_->watchdog};
  }
  /// Time limit for waits that end by themselves.
  [[nodiscard]] std::chrono::milliseconds wait_limit() const noexcept { return wait_limit_; }

 private:
  void wait_for_debugger(const Config& config, const WatchedJob& job);
  /// By rank; `devices` may be empty.
  [[nodiscard]] std::vector<std::string> names(const std::vector<std::string>& devices) const;

  struct BoardAndWatchdog {
    PhaseBoard board;
    std::optional<Watchdog> watchdog;
  };

  TraceRecorder* trace_;
  std::shared_ptr<BoardAndWatchdog> pair_ = std::make_shared<BoardAndWatchdog>();
  std::unique_ptr<CollectiveComparison> comparison_;  ///< null: off
  std::deque<std::unique_ptr<Communicator>> layers_;
  Communicator* comm_ = nullptr;
  std::vector<std::string> hosts_;
  std::chrono::milliseconds wait_limit_{};
};

}  // namespace lockstep
