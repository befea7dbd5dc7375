#pragma once

#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/optim/loss_scaler.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/gradient_sync.hpp"
#include "lockstep/parallel/tail_bucket.hpp"

#include <cstdint>

namespace lockstep {

/// The update of a step, by one of three policies:
/// - eager: each bucket as its reduction ends;
/// - on the device: after all reductions; the device decides whether to update (no overflow, no
///   missing sample) and how to clip, so that the host need not wait;
/// - on the host: after all reductions; the host decides the same once it has the tail.
/// Clipping, dynamic loss scaling, LARS and accumulation need all gradients; these steps are
/// decided on the device if the optimizer can.
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

  // Call once a step, in this order; the arguments are the step's.
  struct Step {
    std::int64_t number = 1;  ///< from 1
    double lr = 0;
    double ema_decay = 1;  ///< UpdateOptions::ema_decay
  };
  /// For each range when its reduction ends.
  void range_reduced(const ParameterRange& range, const Step& step);
  /// Returns whether nothing is left to do on the host, so that later work may be queued.
  [[nodiscard]] bool all_reduced(const Step& step);
  /// After the tail is read, if no samples are missing. `not_finite`: StepSums::not_finite.
  [[nodiscard]] UpdateOutcome finish(const Step& step, int not_finite);

 private:
  enum class Policy { eager, on_device, on_host };
  [[nodiscard]] UpdateOptions update_options(const Step& step) const noexcept;
  [[nodiscard]] bool queue_decision();
  [[nodiscard]] UpdateOutcome update_on_host(const Step& step, int not_finite);
  void update_all(const UpdateOptions& options);

  GradientSync& state_;
  Optimizer& optimizer_;
  const LossScaler& scaler_;
  const TailBucket& tail_;
  Options options_;
  SumOverRanks sum_over_shards_;
  Policy policy_;
};

}  // namespace lockstep
