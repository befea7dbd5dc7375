#include "run_schedule.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

TrainingState before_next_batch(const BatchGeometry& geometry, TrainingState state) {
  if (state.position + geometry.global_batch <= geometry.samples) return state;
  ++state.epoch;
  state.position = 0;
  state.epoch_loss = state.epoch_top1 = state.epoch_top5 = state.epoch_samples = 0;
  return state;
}

std::int64_t step_after_epochs(std::int64_t epochs, const BatchGeometry& geometry,
                               const TrainingState& state) {
  if (state.epoch >= epochs) return state.step;
  const std::int64_t left_in_epoch = (geometry.samples - state.position) / geometry.global_batch;
  return state.step + left_in_epoch + (epochs - state.epoch - 1) * geometry.steps_per_epoch();
}

std::int64_t last_step_of(const Config& config, const BatchGeometry& geometry,
                          const TrainingState& state) {
  const std::int64_t by_epochs = step_after_epochs(config.epochs, geometry, state);
  return config.max_steps == 0 ? by_epochs : std::min(by_epochs, config.max_steps);
}

std::int64_t evaluation_interval(const Config& config, const BatchGeometry& geometry) {
  if (config.eval_every <= 0) return 0;
  const double steps = config.eval_every * static_cast<double>(geometry.steps_per_epoch());
  return std::max<std::int64_t>(1, std::llround(steps));
}

bool is_evaluation_due(const Config& config, std::int64_t interval, const TrainingState& state) {
  if (interval == 0 || state.step == 0 || state.last_eval_step == state.step) return false;
  // --max-steps only pauses a run: an evaluation there would change the resumed run's record.
  const bool all_epochs_done = state.epoch >= config.epochs;
  return state.step % interval == 0 || all_epochs_done;
}

std::optional<LossScale> loss_scale_of(const Config& config, const TrainingState& state) {
  if (config.precision != Precision::fp16) return std::nullopt;
  LossScale scale{.skipped_steps = state.skipped_steps};
  if (state.loss_scale > 0) {
    scale.scale = state.loss_scale;
    scale.good_steps = state.loss_scale_good_steps;
  }
  return scale;
}

}  // namespace lockstep
