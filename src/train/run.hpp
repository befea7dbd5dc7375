#pragma once

#include "build_graph.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/health/job_end.hpp"
#include "lockstep/health/run_watch.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_trace.hpp"
#include "lockstep/run/step_trace.hpp"
#include "lockstep/runtime/memory_limit.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/normalization.hpp"
#include "lockstep/train/trainer.hpp"
#include "lockstep/train/training_session.hpp"
#include "run_data.hpp"
#include "training_steps.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One call of train(). run() calls the phases in order; each sets members that later ones use.
/// Members are destroyed in the opposite order.
class Run final {
 public:
  Run(const Config& config, const TrainingJob& job, StopTimer::Clock::time_point begin)
      : config_(config),
        job_(job),
        begin_(begin),
        start_clock_(job.start_clock),
        recorder_(make_trace_recorder(config)),
        watch_(config, {.comm = job.comm, .grid = job.grid, .cores = job.binding.allowed},
               recorder_.get()),
        comm_(watch_.comm()) {}

  TrainingResult run() {
    find_start();
    plan();
    open_reports();
    report_start_point();
    if (state_.step >= last_step_ && !must_evaluate()) return nothing_to_do();
    build_session();
    open_loaders();
    build_steps();
    describe();
    report_start();
    return loop();
  }
  [[nodiscard]] std::shared_ptr<Watchdog> share_watchdog() const { return watch_.share_watchdog(); }

 private:
  void find_start();
  void plan();
  void open_reports();
  void report_start_point();
  bool must_evaluate();
  TrainingResult nothing_to_do();
  void build_session();
  void open_loaders();
  void build_steps();
  void describe();
  void describe_model();
  void describe_classes();
  void describe_data();
  void describe_engine();
  void describe_local_sgd();
  void describe_evaluation();
  void describe_numerics();
  void describe_end();
  void describe_untrained();
  void describe_resume();
  void describe_average();
  void report_start();
  [[nodiscard]] StateBytes state_bytes();
  TrainingResult loop();
  void open_validation();
  [[nodiscard]] JobEndOptions job_end_options() const;
  [[nodiscard]] TimeAdvice time_advice();
  [[nodiscard]] Dataset& data() const noexcept { return *training_.matched.data; }
  /// The engine's.
  [[nodiscard]] const Graph& graph() const noexcept { return graphs_.front().graph; }

  const Config& config_;
  const TrainingJob& job_;
  StopTimer::Clock::time_point begin_;
  StartClock start_clock_;
  std::unique_ptr<TraceRecorder> recorder_;  ///< null: no trace
  std::optional<StepTrace> step_trace_;
  RunWatch watch_;
  Communicator& comm_;

  std::optional<JobEnd> job_end_;  ///< rank 0's: its stop request reaches all ranks
  MatchedTraining training_;
  std::optional<RunDirectory> directory_;           ///< rank 0's
  std::optional<CheckpointDirectory> checkpoints_;  ///< rank 0's
  RunStart start_;
  NormalizedPlan plan_;
  std::vector<SizedGraph> graphs_;
  std::optional<Graph> evaluation_graph_;  ///< for images of another size
  std::vector<ConfigDifference> changes_;  ///< of options since the checkpoint
  std::vector<std::string> consequences_;  ///< of these changes
  BatchGeometry geometry_;
  TrainingState state_;
  std::int64_t last_step_ = 0;
  std::shared_ptr<RunReporter> reporter_;

  std::vector<MemoryLimit> limits_;  ///< of a CPU engine
  std::optional<TrainingSession> session_;
  std::string checkpoints_backend_;     ///< as in TrainingState; empty: unknown
  std::string checkpoints_all_reduce_;  ///< as checkpoints_backend_
  std::shared_ptr<Dataset> validation_;
  std::shared_ptr<Staging> staging_;
  LoaderOptions loading_;
  std::optional<TrainingSteps> steps_;
  TimeAllowed time_;
  std::optional<StopTimer> stop_timer_;
  std::optional<Evaluator> evaluator_;
};

}  // namespace lockstep
