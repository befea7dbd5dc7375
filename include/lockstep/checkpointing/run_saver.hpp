#pragma once

#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/checkpointing/save_schedule.hpp"
#include "lockstep/checkpointing/state_snapshot.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/health/stop_timer.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/state_transfer.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/run/run_trace.hpp"
#include "lockstep/runtime/phase_board.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class Engine;

/// Components that a saver uses; all of them outlive it.
struct RunSaverParts {
  const Config& config;
  Communicator& comm;
  Engine& engine;
  StateTransfer& transfer;
  Optimizer& optimizer;
  const ModelAverage* average;       ///< as StateSnapshot::Source
  CheckpointDirectory* checkpoints;  ///< rank 0's; null elsewhere
  const RunDirectory* directory;     ///< rank 0's; null elsewhere
  RunReporter& reporter;
  PhaseBoard& board;
  StopTimer& stop_timer;
  RunTrace* trace;                       ///< null: no trace
  const ImageShape& image;               ///< of training images, which may change between saves
  std::vector<std::string> class_names;  ///< for the checkpoints
  std::vector<int> cores;                ///< cores for the saving thread
  int nodes = 1;                         ///< of the job
};

/// Where a save may start: after any step, or after the last step of an epoch.
enum class Boundary { step, epoch_end };

/// A run's checkpoints: when to save, and the copy of the state that rank 0 writes while training
/// continues. If the state is sharded, all ranks make the same calls.
class RunSaver final {
 public:
  /// The checkpoint that the run starts from.
  struct Saved {
    std::int64_t step = 0;
    std::string path = {};  ///< empty: none
    std::int64_t best_step = -1;
    double best_top1 = -1;
  };
  struct Limits {
    std::chrono::milliseconds stall = std::chrono::seconds(60);  ///< without progress: a warning
    SaveSchedule::Limits schedule = {};
  };
  RunSaver(RunSaverParts parts, Saved saved) : RunSaver(std::move(parts), std::move(saved), {}) {}
  RunSaver(RunSaverParts parts, Saved saved, const Limits& limits);
  RunSaver(const RunSaver&) = delete;
  RunSaver& operator=(const RunSaver&) = delete;

  /// Whether this rank requests a save at the boundary after step `step` + 1.
  [[nodiscard]] bool is_due(std::int64_t step, Boundary boundary = Boundary::step) const;
  /// Requests a save at the next boundary, and again until one succeeds; backs off after failures.
  /// The copy of a new best model is kept until it is written: later weights are not the best.
  void want(Boundary boundary = Boundary::step) noexcept;
  /// A step took `seconds`, without what training does between steps.
  void step_took(double seconds);
  [[nodiscard]] bool busy() const noexcept { return saver_ && saver_->busy(); }

  /// Saves this step again at the next save, though its file exists: the state has changed.
  void save_again() noexcept { started_step_ = -1; }
  /// Waits for a save in progress, so that start_pending() can start one. Collective.
  void await_writer();
  /// Starts a pending save; call at a boundary where all ranks agree that a save may start.
  /// `checks`: seconds that checks before it took.
  void start_pending(const TrainingState& state, double checks = 0);
  /// Reports finished and stalled saves, and requests or starts failed ones again.
  void report();
  /// Saves and waits. Collective; Error(cannot_write) on all ranks if the save failed or another
  /// job holds the run directory now. If the best model still cannot be written, the saved state
  /// names the best that was.
  void save_and_wait(const TrainingState& state);
  /// On rank 0: the newest file that this run has written, else the one it started from. Empty:
  /// none.
  [[nodiscard]] const std::string& newest() const noexcept { return newest_; }
  /// Waits for a save in progress, then returns newest() of rank 0 on all ranks. Collective.
  [[nodiscard]] std::string last_good();

 private:
  /// Rank 0's decision if the state is sharded (all ranks must take part), else `mine`.
  [[nodiscard]] bool decide_together(bool mine);
  /// Copies the state. Collective if it is sharded.
  void copy(const TrainingState& state);
  /// On rank 0, starts to write the copy.
  void write();
  /// On rank 0, writes an unsaved best model and waits, before a later `state`. Returns the state
  /// to save.
  TrainingState settle_best(TrainingState state);
  /// On rank 0, waits for the save in progress.
  void finish();
  /// Takes the outcome of a save that has ended, and reports it; nullopt if there is none.
  std::optional<BackgroundSaver::Outcome> take_outcome();
  /// As report(), but starts nothing.
  void collect();
  void report_stall();
  /// Says how often the run saves, when that is known and when it has changed.
  void report_interval();

  struct TracedSave {
    std::int64_t begin = 0;
    TraceRow::Handle handle = 0;
  };

  RunSaverParts parts_;
  bool sharded_;  ///< each rank keeps a shard of the state
  StateSnapshot snapshot_;
  SaveBackoff backoff_;
  SaveSchedule schedule_;
  double copy_seconds_ = 0;       ///< of the newest save
  double reported_interval_ = 0;  ///< seconds; 0: not yet
  StallAlarm stall_;
  std::atomic<std::int64_t> moves_ = 0;   ///< the saver's progress: saves begun + units written
  std::optional<BackgroundSaver> saver_;  ///< rank 0's
  bool pending_ = false;
  std::int64_t started_step_;  ///< step of the newest save started; -1: it failed or must wait
  CheckpointInfo copied_;      ///< rank 0's: of the snapshot
  bool unsaved_best_ = false;  ///< rank 0's: the snapshot is of a best model and must be written
  std::int64_t written_best_step_;
  double written_best_top1_;
  bool warned_of_links_ = false;
  TracedSave traced_;  ///< the newest save's; its outcome is taken before the next starts
  std::chrono::steady_clock::time_point last_start_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> last_epoch_end_;  ///< that was saved
  std::string newest_;
};

}  // namespace lockstep
