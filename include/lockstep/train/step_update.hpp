#pragma once

#include "lockstep/core/function_ref.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/optim/loss_scaler.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/gradient_sync.hpp"
#include "lockstep/parallel/tail_bucket.hpp"
#include "lockstep/step/step_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Runs the ops at the end of a step (step/end_of_step): reductions, and updates as they end or, if
/// the update depends on all gradients (clipping, dynamic loss scaling, LARS, LAMB, accumulation),
/// after a decision. The device decides whether to update (no overflow, no missing sample) and how
/// to clip, so that the host need not wait; if the optimizer cannot, or is sharded, the host does
/// once it has the tail.
class StepUpdate final {
 public:
  struct Options {
    double clip_norm = 0;           ///< largest gradient norm; 0: no clipping
    std::int64_t global_batch = 0;  ///< samples of a complete step
    bool accumulates = false;       ///< gradients are complete only in the last micro-step
  };
  /// All references outlive it.
  StepUpdate(GradientSync& state, Optimizer& optimizer, const LossScaler& scaler,
             const TailBucket& tail, const Options& options);

  struct Step {
    std::int64_t number = 1;  ///< from 1
    double lr = 0;
    double ema_decay = 1;  ///< UpdateOptions::ema_decay
  };
  // Call once a step, in this order; the step is the same.
  /// Runs the ops up to a decision of the host; `ended` is called after each. Returns whether
  /// nothing is left to do on the host, so that later work may be queued.
  using Ended = FunctionRef<void(const StepOp& op)>;
  [[nodiscard]] bool run(const Step& step, std::span<const float> tail, Ended ended);
  /// The rest, after the tail is read, if no samples are missing. `not_finite`:
  /// StepSums::not_finite.
  [[nodiscard]] UpdateOutcome finish(const Step& step, int not_finite);

 private:
  void run(const StepOp& op, const UpdateOptions& update, std::span<const float> tail);
  void update(const ParameterRange& range, const UpdateOptions& options);
  [[nodiscard]] UpdateOptions update_options(const Step& step) const noexcept;
  [[nodiscard]] bool decide_on_device();
  [[nodiscard]] UpdateOutcome decide_on_host(int not_finite, UpdateOptions& update);

  GradientSync& state_;
  Optimizer& optimizer_;
  const LossScaler& scaler_;
  const TailBucket& tail_;
  Options options_;
  SumOverRanks sum_over_shards_;
  bool decides_ = false;  ///< the update depends on all gradients
  bool host_decides_;
  std::vector<StepOp> ops_;
  std::size_t next_ = 0;  ///< op of this step
};

}  // namespace lockstep
