#include "lockstep/train/step_update.hpp"

#include <cmath>
#include <span>

namespace lockstep {

StepUpdate::StepUpdate(GradientSync& state, Optimizer& optimizer, const LossScaler& scaler,
                       const TailBucket& tail, const Options& options)
    : state_(state),
      optimizer_(optimizer),
      scaler_(scaler),
      tail_(tail),
      options_(options),
      sum_over_shards_(state.sum_over_shards()) {
  const bool needs_all = options.clip_norm > 0 || optimizer.needs_all_gradients() ||
                         scaler.is_dynamic() || options.accumulates;
  // With shards, the hosts sum the norms.
  policy_ = !needs_all                    ? Policy::eager
            : state.layout().is_sharded() ? Policy::on_host
                                          : Policy::on_device;
}

UpdateOptions StepUpdate::update_options(const Step& step) const noexcept {
  return {.lr = step.lr, .step = scaler_.updates(step.number), .ema_decay = step.ema_decay};
}

void StepUpdate::range_reduced(const ParameterRange& range, const Step& step) {
  if (policy_ != Policy::eager) return;
  optimizer_.update(range.begin, range.end, range.parameters, state_.gradients(),
                    update_options(step));
}

bool StepUpdate::all_reduced(const Step& step) {
  if (policy_ == Policy::eager) {
    state_.updated();
    return true;
  }
  if (policy_ == Policy::on_device && !queue_decision()) policy_ = Policy::on_host;
  if (policy_ == Policy::on_host) return false;
  UpdateOptions update = update_options(step);
  update.as_decided = true;
  update_all(update);
  return true;
}

UpdateOutcome StepUpdate::finish(const Step& step, int not_finite) {
  if (policy_ == Policy::on_device) return optimizer_.outcome();
  return policy_ == Policy::on_host ? update_on_host(step, not_finite) : UpdateOutcome{};
}

/// False if this optimizer leaves the decision to the host.
bool StepUpdate::queue_decision() {
  const std::span<const float> tail = state_.reduced_tail();
  return optimizer_.decide({.gradients = state_.gradients(),
                            .samples = &tail[tail_.samples_at()],
                            .all_samples = options_.global_batch,
                            .not_finite = &tail[tail_.not_finite_at()],
                            .scale = 1.0 / scaler_.scale(),
                            .clip_norm = options_.clip_norm,
                            .skips_overflow = scaler_.is_dynamic()});
}

UpdateOutcome StepUpdate::update_on_host(const Step& step, int not_finite) {
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
  UpdateOptions update = update_options(step);
  update.gradient_scale = static_cast<float>(scale);
  if (state_.layout().is_sharded()) {
    optimizer_.measure(state_.update_ranges(), state_.gradients(), update);
  }
  update_all(update);
  return outcome;
}

void StepUpdate::update_all(const UpdateOptions& options) {
  for (const ParameterRange& range : state_.update_ranges()) {
    optimizer_.update(range.begin, range.end, range.parameters, state_.gradients(), options);
  }
  state_.updated();
}

}  // namespace lockstep
