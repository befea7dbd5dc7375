#pragma once

#include "lockstep/checkpointing/run_saver.hpp"
#include "lockstep/health/feeding_watch.hpp"
#include "lockstep/health/job_end.hpp"
#include "lockstep/health/replica_check.hpp"
#include "lockstep/health/straggler_watch.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/run/run_trace.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/run_plan.hpp"
#include "lockstep/train/train_step.hpp"
#include "lockstep/train/trainer.hpp"
#include "training_steps.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Engine;

/// Components of the loop; all of them outlive it.
struct TrainingLoopParts {
  const RunPlan& plan;
  const BatchGeometry& geometry;
  Communicator& comm;
  Engine& engine;
  ParallelState& parallel;
  int shard_group;  ///< its size in ranks
  TrainingSteps& steps;
  Evaluator* evaluator;   ///< null: no validation split
  ModelAverage* average;  ///< evaluated too; null: none
  RunSaver& saver;
  const RunDirectory* directory;  ///< rank 0's; null elsewhere
  RunReporter& reporter;
  PhaseBoard& board;
  StopTimer& stop_timer;
  JobEnd* job_end;  ///< rank 0's; null elsewhere
  int loader_threads;
  RunTrace* trace;                      ///< null: no trace
  std::vector<std::string> hosts;       ///< by rank
  std::function<void()> between_steps;  ///< may be empty; not collective
};

/// Runs steps from a state to the configured end; saves, evaluates and reports at step boundaries.
class TrainingLoop final {
 public:
  TrainingLoop(const TrainingLoopParts& parts, TrainingState state, std::int64_t last_step);
  TrainingResult run();

 private:
  /// Saves, and reports how the run ended.
  void end_run();
  [[nodiscard]] bool finished() const noexcept;
  /// The action after `step` if no rank requests a stop or a save.
  [[nodiscard]] NextAction next_action(std::int64_t step) const noexcept;
  /// What the next step ends.
  [[nodiscard]] Boundary next_boundary() const noexcept;
  /// This rank's requests with the next step. Stops and saves wait until replicas are equal.
  [[nodiscard]] StepRequests requests(StepSync sync, Boundary boundary);
  /// Saves if the replicas are equal, and throws the error of a rank's data on all ranks.
  void leave_with_data_error();
  void advance(const StepResult& result, double lr);
  void close_epoch(double lr);
  /// Says once how many images the loader decoded although the engine decodes.
  void report_decoding();
  /// Names the slow ranks of the steps since the last comparison. Collective.
  void compare_ranks();
  /// Makes loader and step anew for the image size of the state's epoch. Collective.
  void change_size();
  void check_finite(const StepResult& result);
  void check_scale(const StepResult& result);
  void keep_loss_scale();
  /// False if a stop request ended it.
  bool evaluate_if_due();
  /// Evaluates the weights and, if they are averaged, their average; nullopt if a stop request
  /// ended it. Collective.
  [[nodiscard]] std::optional<Evaluations> evaluate();
  /// Call at a boundary that all ranks agree on. `must`: ignore the interval, before a save.
  void check_replicas(bool must);
  /// Whether this rank wants the run to stop after step `step`, which leaves replicas equal.
  [[nodiscard]] bool stop_due(std::int64_t step);
  /// The training thread's row; null without a trace.
  [[nodiscard]] TraceRow* phases() noexcept;

  TrainingLoopParts parts_;
  TrainingState state_;
  std::int64_t last_step_;
  std::int64_t eval_interval_ = 0;  ///< steps; 0: never
  Schedule schedule_;
  EmaSchedule ema_schedule_;
  std::chrono::steady_clock::time_point step_end_ = std::chrono::steady_clock::now();
  PhaseTimes epoch_times_;
  double epoch_seconds_ = 0;
  StragglerWatch stragglers_;
  FeedingWatch feeding_;
  std::optional<ReplicaCheck> replica_check_;
  std::int64_t checked_step_ = -1;
  bool check_is_due_ = false;   ///< of replicas
  bool replicas_equal_ = true;  ///< false after a local step, until the next average
  double checks_seconds_ = 0;   ///< of this boundary's replica checks and comparison of ranks
  bool out_of_time_ = false;
  bool evaluation_was_stopped_ = false;
  bool decoding_reported_ = false;
  double own_loss_ = 0;
  double own_samples_ = 0;
  TrainingResult result_;
};

}  // namespace lockstep
