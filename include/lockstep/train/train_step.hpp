#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/loss_scaler.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/tail_bucket.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/train/batch_geometry.hpp"
#include "lockstep/train/blank_batch.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace lockstep {

/// Wall time of one step by phase, in seconds. `communication` is what backward did not hide.
struct PhaseTimes {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double communication = 0;
  double optimizer = 0;
  [[nodiscard]] double total() const noexcept {
    return data + forward + backward + communication + optimizer;
  }
  PhaseTimes& operator+=(const PhaseTimes& other) noexcept;
};

/// Requests of this rank to all ranks at the end of the step.
struct StepRequests {
  bool stop = false;
  bool save = false;
  int pieces = 0;  ///< rank 0's, of StateSnapshot
};

/// Whether the next step may be queued early. A rank's request may still come first.
enum class NextAction {
  step,  ///< the engine only reads and writes memory before it
  other  ///< an evaluation, or the end of the run
};

struct StepResult {
  StepSums sums;        ///< over all ranks
  double own_loss = 0;  ///< this rank's sum over its samples
  double own_samples = 0;
  double gradient_norm = 0;  ///< before clipping; 0 where it was not needed
  bool overflowed = false;   ///< scaled gradients were not finite: the step changed nothing
  bool updated = true;  ///< false: a rank's data failed in the middle of the step, nothing changed
  PhaseTimes times;
};

struct TrainStepOptions {
  BatchGeometry geometry;
  double clip_grad_norm = 0;                 ///< 0: off
  std::optional<LossScale> loss_scale = {};  ///< where it stands; empty: no scaling
  /// Ranks meet inside the engine's programs (synchronised batch norms, sharded units),
  /// so one whose data failed still runs each micro-step, on blank images that count for nothing.
  bool meets_in_programs = false;
  PhaseBoard* board = nullptr;     ///< told of the step's phases; null: nobody looks
  TraceRecorder* trace = nullptr;  ///< has the step's phases as rows; null: it is not traced
};

/// The training step: load, forward, backward with each bucket's reduction started as soon as its
/// last gradient is there, update each bucket as its reduction ends, metrics.
///
/// The next step's data is taken before this step's tail is sent, so that a rank whose data is bad
/// says so one step ahead and all ranks can leave from a good state.
class TrainStep final {
 public:
  /// All references outlive the object; `optimizer` is made for the state's layout. The first batch
  /// is loaded here: collective, throws the lowest failing rank's Error on all.
  TrainStep(Engine& engine, ParallelState& state, Optimizer& optimizer, Communicator& comm,
            Loader& loader, const TrainStepOptions& options);

  /// Collective. `step` counts from 1. Where another step comes, and the engine only queues what it
  /// is asked for, that one's forward is queued before this one's result is waited for.
  StepResult run(std::int64_t step, double lr, StepRequests requests,
                 NextAction next = NextAction::other);

  /// The fault that StepResult::sums.failed counts, on the rank that has it.
  [[nodiscard]] const std::optional<Error>& data_error() const noexcept { return data_error_; }
  [[nodiscard]] const LossScaler& loss_scaler() const noexcept { return scaler_; }
  [[nodiscard]] std::size_t activation_bytes() const noexcept;
  [[nodiscard]] const TailBucket& tail() const noexcept { return tail_; }

 private:
  void load_next();
  [[nodiscard]] Program& program_for(std::int64_t batch_size) noexcept;
  void update_all(const UpdateOptions& options);
  /// Lets the engine decide behind what it was asked for so far; false where it cannot.
  [[nodiscard]] bool update_as_decided(double lr, std::int64_t step);
  void take_answer(StepResult& result) const;
  void update_after_all(double lr, std::int64_t step, StepResult& result);

  Engine& engine_;
  ParallelState& state_;
  Optimizer& optimizer_;
  SumOverRanks sum_over_parts_;
  Loader& loader_;
  TrainStepOptions options_;
  PhaseBoard own_board_;
  PhaseBoard& board_;
  TraceRow* phases_ = nullptr;
  TraceRow* steps_ = nullptr;
  LossScaler scaler_;
  TailBucket tail_;
  HostBuffer<float> tail_values_;  ///< in host memory; reduced with the gradients
  std::unique_ptr<Program> program_;
  std::unique_ptr<Program> smaller_program_;  ///< where this rank's micro-batches differ by one
  std::optional<LoadedBatch> batch_;
  BlankBatch blank_;
  std::optional<Error> data_error_;
  bool is_ahead_ = false;  ///< the next step's first forward is queued
};

}  // namespace lockstep
