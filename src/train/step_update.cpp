#include "lockstep/train/step_update.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/step/step_text.hpp"

#include <cmath>

namespace lockstep {

StepUpdate::StepUpdate(GradientSync& state, Optimizer& optimizer, const LossScaler& scaler,
                       const TailBucket& tail, const Options& options)
    : state_(state),
      optimizer_(optimizer),
      scaler_(scaler),
      tail_(tail),
      options_(options),
      sum_over_shards_(state.sum_over_shards()),
      host_decides_(state.layout().is_sharded()) {  // the hosts sum the norms of shards
  StepEnd end = state.step_end();
  end.clips = options.clip_norm > 0;
  end.accumulates = options.accumulates;
  end.skips_overflow = scaler.is_dynamic();
  end.optimizer_needs_all = optimizer.needs_all_gradients();
  decides_ = end.decides();
  ops_ = end_of_step(end);
}

UpdateOptions StepUpdate::update_options(const Step& step) const noexcept {
  return {.lr = step.lr, .step = scaler_.updates(step.number), .ema_decay = step.ema_decay};
}

bool StepUpdate::run(const Step& step, std::span<const float> tail, Ended ended) {
  UpdateOptions update = update_options(step);
  for (next_ = 0; next_ < ops_.size(); ++next_) {
    const StepOp& op = ops_[next_];
    if (op.kind == StepOp::Kind::decide) {
      if (host_decides_ || !decide_on_device()) return false;
      update.as_decided = true;
    }
    run(op, update, tail);
    ended(op);
  }
  return true;
}

UpdateOutcome StepUpdate::finish(const Step& step, int not_finite) {
  UpdateOptions update = update_options(step);
  UpdateOutcome outcome;
  if (next_ == ops_.size()) return decides_ ? optimizer_.outcome() : outcome;
  outcome = decide_on_host(not_finite, update);
  if (!outcome.made) return outcome;
  while (++next_ < ops_.size()) run(ops_[next_], update, {});
  return outcome;
}

void StepUpdate::run(const StepOp& op, const UpdateOptions& options, std::span<const float> tail) {
  using Kind = StepOp::Kind;
  switch (op.kind) {
    case Kind::start_tail:
      return state_.start_tail(tail);
    case Kind::await_tail:
      return state_.await_tail();
    case Kind::await_reduction:
      return state_.exchange().await_reduction(op.unit);
    case Kind::start_replica_reduction:
      return state_.exchange().start_replica_reduction(op.unit);
    case Kind::await_replica_reduction:
      return state_.await_replica_reduction(op.unit);
    case Kind::update:
      return update(state_.range_of(op.unit), options);
    case Kind::update_all:
      for (const ParameterRange& range : state_.update_ranges()) update(range, options);
      return;
    case Kind::start_gather:
      return state_.gather_updated(op.unit);
    case Kind::decide:
      return;
    default:
      fail(ExitStatus::internal, "cannot run '{}' at the end of a step (only a program runs it)",
           kind_name(op));
  }
}

void StepUpdate::update(const ParameterRange& range, const UpdateOptions& options) {
  optimizer_.update(range.begin, range.end, range.parameters, state_.gradients(), options);
}

/// False if this optimizer leaves the decision to the host.
bool StepUpdate::decide_on_device() {
  const std::span<const float> tail = state_.reduced_tail();
  return optimizer_.decide({.gradients = state_.gradients(),
                            .samples = &tail[tail_.samples_at()],
                            .all_samples = options_.global_batch,
                            .not_finite = &tail[tail_.not_finite_at()],
                            .scale = 1.0 / scaler_.scale(),
                            .clip_norm = options_.clip_norm,
                            .skips_overflow = scaler_.is_dynamic()});
}

UpdateOutcome StepUpdate::decide_on_host(int not_finite, UpdateOptions& update) {
  UpdateOutcome outcome;
  double scale = 1.0 / scaler_.scale();
  if (options_.clip_norm > 0 || scaler_.is_dynamic()) {
    // Synchronous steps have the same bits on all ranks, so all make the same decision; in a local
    // step each rank clips its own gradient.
    double squared = optimizer_.squared_norm(state_.gradients());
    sum_over_shards_({&squared, 1});
    outcome.gradient_norm = scale * std::sqrt(squared);
  }
  if (scaler_.is_dynamic() && (!std::isfinite(outcome.gradient_norm) || not_finite > 0)) {
    outcome.made = false;
    return outcome;
  }
  if (options_.clip_norm > 0) {
    // As torch.nn.utils.clip_grad_norm_: the 1e-6 keeps a zero norm finite, and NaN stays NaN.
    const double share = options_.clip_norm / (outcome.gradient_norm + 1e-6);
    if (!(share > 1)) scale *= share;
  }
  update.gradient_scale = static_cast<float>(scale);
  if (state_.layout().is_sharded()) {
    optimizer_.measure(state_.update_ranges(), state_.gradients(), update);
  }
  return outcome;
}

}  // namespace lockstep
