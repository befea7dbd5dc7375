#pragma once

#include "lockstep/train/state_snapshot.hpp"
#include "lockstep/train/training_loop.hpp"
#include "save_backoff.hpp"
#include "stall_alarm.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// A run's checkpoints: when they are due, and how the ranks' parts of the state come into them
/// while training goes on. All ranks make the same calls where the state is sharded.
class RunSaver final {
 public:
  /// `saved_step`: of the newest checkpoint that there is. `stall_limit`: how long a save may stand
  /// still without a warning.
  RunSaver(const TrainingLoopParts& parts, std::int64_t saved_step,
           std::chrono::milliseconds stall_limit = std::chrono::seconds(60));
  ~RunSaver();
  RunSaver(const RunSaver&) = delete;
  RunSaver& operator=(const RunSaver&) = delete;

  /// Whether this rank wants to save at the boundary of the step after `step`.
  [[nodiscard]] bool is_due(std::int64_t step) const noexcept;
  /// Requests a save at the next boundary, and again until one succeeds; less and less often after
  /// failures.
  void want() noexcept { pending_ = true; }
  [[nodiscard]] bool busy() const noexcept { return saver_ && saver_->busy(); }

  /// Pieces of the state that rank 0's writer waits for, and that the ranks bring it.
  [[nodiscard]] int pieces_wanted() { return busy() ? snapshot_.wanted() : 0; }
  void deliver(int pieces);

  /// At a boundary of which all ranks know that a save may begin.
  void start_pending(const TrainingState& state);
  /// Tells of what has been saved or stands still, and wants again what has not been saved.
  void report();
  /// Saves and waits for it; all ranks learn whether it worked. Error(cannot_write), also where the
  /// run directory is another job's now.
  void save_and_wait(const TrainingState& state);
  /// The newest file that this run has written; rank 0's. Empty: none.
  [[nodiscard]] const std::string& newest() const noexcept { return newest_; }
  /// The same for all ranks, once what is under way has ended. Collective.
  [[nodiscard]] std::string last_good();

 private:
  /// What rank 0 has decided, where all ranks must take part; elsewhere each rank's own.
  [[nodiscard]] bool decided(bool mine);
  void start(const TrainingState& state);
  void finish();
  /// The next outcome, told of; nullopt where there is none.
  std::optional<BackgroundSaver::Outcome> finished();
  void report_stall();

  struct TracedSave {
    std::int64_t begin = 0;
    TraceRow::Handle handle = 0;
  };

  const TrainingLoopParts& parts_;
  bool sharded_;  ///< each rank keeps a shard of the state
  StateSnapshot snapshot_;
  SaveBackoff backoff_;
  StallAlarm stall_;
  std::atomic<std::int64_t> moves_ = 0;   ///< of the saver: saves begun and pieces written
  std::optional<BackgroundSaver> saver_;  ///< rank 0's
  bool pending_ = false;
  std::int64_t started_step_;  ///< the newest that was handed to the saver
  TracedSave traced_;          ///< the same; its outcome comes before the next one begins
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::string newest_;
};

}  // namespace lockstep
