#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/engine/program.hpp"
#include "lockstep/health/phase_times.hpp"
#include "lockstep/optim/loss_scaler.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/gradient_sync.hpp"
#include "lockstep/parallel/model_average.hpp"
#include "lockstep/parallel/replica_averager.hpp"
#include "lockstep/parallel/tail_bucket.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/train/batch_geometry.hpp"
#include "lockstep/train/blank_batch.hpp"
#include "lockstep/train/step_update.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

class Engine;

/// Requests of this rank to all ranks at the end of the step.
struct StepRequests {
  bool stop = false;
  bool save = false;
};

/// Whether the next step may be queued early; equal on all ranks. A rank's request may still
/// precede the next step.
enum class NextAction {
  step,  ///< before the next step, the engine only reads and writes memory
  other  ///< an evaluation, the start or end of a trace, another image size, or the end of the run
};

/// Arguments of one step besides those of the update.
struct StepCall {
  StepRequests requests = {};
  NextAction next = NextAction::other;
  StepSync sync = StepSync::gradients;
};

struct StepResult {
  StepSums sums;        ///< over all ranks
  double own_loss = 0;  ///< this rank's sum over its samples
  double own_samples = 0;
  double gradient_norm = 0;  ///< before clipping; in a local step this rank's; 0 if not computed
  bool overflowed = false;   ///< scaled gradients were not finite: the step changed nothing
  bool updated = true;       ///< false: a rank's data failed during the step, nothing changed
  PhaseTimes times;
};

struct TrainStepOptions {
  BatchGeometry geometry;
  const Graph* graph = nullptr;              ///< as in ProgramOptions
  double clip_grad_norm = 0;                 ///< 0: off
  std::optional<LossScale> loss_scale = {};  ///< initial state; empty: no scaling
  /// The engine's programs contain collectives (synchronised batch norms, sharded units), so a rank
  /// whose data failed still runs each micro-step, on blank images that are not counted.
  bool has_collectives = false;
  ReplicaAverager* replicas = nullptr;  ///< null: no step averages them
  ModelAverage* average = nullptr;      ///< follows the updates; null: none
  PhaseBoard* board = nullptr;          ///< gets the step's phases; null: none
  TraceRecorder* trace = nullptr;       ///< gets the step's phases as rows; null: no trace
  /// Called with a warning when a wait for data has no end; may be empty.
  std::function<void(const std::string&)> warn = {};
};

/// The training step: load, forward, backward (each bucket's reduction starts as soon as its last
/// gradient is ready), update of each bucket when its reduction is done, metrics.
///
/// Loads the next step's data before this step's tail is sent, so that a rank with bad data reports
/// it one step ahead and all ranks can exit from a good state.
class TrainStep final {
 public:
  /// All references outlive the object; `optimizer` has the layout of `state`. Collective: loads
  /// the first batch, and throws the lowest failing rank's Error on all ranks.
  TrainStep(Engine& engine, GradientSync& state, Optimizer& optimizer, Communicator& comm,
            Loader& loader, const TrainStepOptions& options);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  /// Collective. If another step follows and the engine queues its work, the next step's forward is
  /// queued before this step's result is awaited.
  StepResult run(const StepUpdate::Step& step, const StepCall& call = {});

  /// The error that StepResult::sums.failed counts, on the rank that has it.
  [[nodiscard]] const std::optional<Error>& data_error() const noexcept { return data_error_; }
  [[nodiscard]] const LossScaler& loss_scaler() const noexcept { return scaler_; }
  [[nodiscard]] std::size_t activation_bytes() const noexcept;
  [[nodiscard]] const TailBucket& tail() const noexcept { return tail_; }

 private:
  struct Current;
  [[nodiscard]] std::unique_ptr<Program> compile(std::int64_t batch_size);
  void load_next();
  [[nodiscard]] Program& program_for(std::int64_t batch_size) noexcept;
  [[nodiscard]] Batch batch_of(int micro);
  void run_micro_step(int micro, Current& current);
  void write_sums(const StepRequests& requests, Current& current);
  [[nodiscard]] bool reduce(Current& current);
  void run_ahead(Current& current);
  void finish(Current& current);
  [[nodiscard]] double lap_at_end(Current& current, const char* name) noexcept;

  Engine& engine_;
  GradientSync& state_;
  Loader& loader_;
  TrainStepOptions options_;
  PhaseBoard own_board_;
  PhaseBoard& board_;
  TraceRow* phases_ = nullptr;
  TraceRow* steps_ = nullptr;
  LossScaler scaler_;
  TailBucket tail_;
  HostBuffer<float> tail_values_;  ///< in host memory; reduced with the gradients
  StepUpdate update_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Program> smaller_program_;  ///< if this rank's micro-batches differ by one
  std::optional<LoadedBatch> batch_;
  BlankBatch blank_;
  std::optional<Error> data_error_;
  bool is_ahead_ = false;  ///< the next step's first forward is queued
};

}  // namespace lockstep
