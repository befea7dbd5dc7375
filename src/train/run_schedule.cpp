#include "run_schedule.hpp"

#include "lockstep/config/options.hpp"
#include "lockstep/core/version.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

TrainingState before_next_batch(const BatchGeometry& geometry, TrainingState state) {
  if (state.position + geometry.global_batch <= geometry.samples) return state;
  ++state.epoch;
  state.position = 0;
  state.epoch_loss = state.epoch_samples = 0;
  state.epoch_metrics = {};
  return state;
}

TrainingState starting_state(const StartingRun& run, const std::optional<TrainingState>& from) {
  TrainingState state;
  if (from) state = before_next_batch(run.geometry, *from);
  state.world_size = run.geometry.world_size;
  state.global_batch = run.geometry.global_batch;
  state.seed = run.config.seed;
  if (run.config.precision != Precision::fp16) {
    state.loss_scale = 0;
    state.loss_scale_good_steps = 0;
  }
  state.data_identity = run.data_identity;
  state.model_identity = run.graph.fingerprint();
  state.model = run.graph.name();
  state.config = print_config(run.config);
  state.version = version();
  return state;
}

std::int64_t step_after_epochs(std::int64_t epochs, const BatchGeometry& geometry,
                               const TrainingState& state) {
  if (state.epoch >= epochs) return state.step;
  const std::int64_t left_in_epoch = (geometry.samples - state.position) / geometry.global_batch;
  return state.step + left_in_epoch + (epochs - state.epoch - 1) * geometry.steps_per_epoch();
}

namespace {

/// The first end of an epoch from `step` on, after the state's.
std::int64_t next_epoch_end(const BatchGeometry& geometry, const TrainingState& state,
                            std::int64_t step) {
  const std::int64_t first = step_after_epochs(state.epoch + 1, geometry, state);
  if (step <= first) return first;
  const std::int64_t steps = geometry.steps_per_epoch();
  return first + (step - first + steps - 1) / steps * steps;
}

}  // namespace

StepSync step_sync(const Config& config, const BatchGeometry& geometry, const TrainingState& state,
                   std::int64_t step) {
  if (config.sync_every == 0) return StepSync::gradients;
  const std::int64_t seen = state.samples + (step - 1 - state.step) * geometry.global_batch;
  const auto epoch_samples = static_cast<double>(geometry.epoch_samples());
  if (static_cast<double>(seen) < config.sync_start * epoch_samples) return StepSync::gradients;
  const bool averages =
      step % config.sync_every == 0 || next_epoch_end(geometry, state, step) == step;
  return averages ? StepSync::average : StepSync::local;
}

std::int64_t next_equal_step(const Config& config, const BatchGeometry& geometry,
                             const TrainingState& state, std::int64_t step) {
  if (step_sync(config, geometry, state, step) != StepSync::local) return step;
  const std::int64_t by_interval = step + config.sync_every - step % config.sync_every;
  return std::min(by_interval, next_epoch_end(geometry, state, step));
}

std::int64_t last_step_of(const Config& config, const BatchGeometry& geometry,
                          const TrainingState& state) {
  const std::int64_t by_epochs = step_after_epochs(config.epochs, geometry, state);
  if (config.max_steps == 0 || config.max_steps >= by_epochs) return by_epochs;
  if (config.max_steps <= state.step) return config.max_steps;
  return next_equal_step(config, geometry, state, config.max_steps);
}

std::int64_t evaluation_interval(const Config& config, const BatchGeometry& geometry) {
  if (config.eval_every <= 0) return 0;
  const double steps = config.eval_every * static_cast<double>(geometry.steps_per_epoch());
  return std::max<std::int64_t>(1, std::llround(steps));
}

bool is_evaluation_due(const Config& config, std::int64_t interval, const TrainingState& state) {
  if (interval == 0 || state.step == 0 || state.last_eval_step == state.step) return false;
  // --max-steps only pauses a run: an evaluation there would change the resumed run's record.
  if (state.epoch >= config.epochs) return true;
  const std::int64_t window = std::max<std::int64_t>(config.sync_every, 1);
  const std::int64_t before = (state.step - 1) / window * window;
  const std::int64_t due = state.step / interval * interval;
  return due > before && due > state.last_eval_step;
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
