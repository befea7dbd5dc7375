#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/optim/loss_scaler.hpp"
#include "lockstep/train/batch_geometry.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

// When a run evaluates and ends, and its loss scale. `config` is the resolved one, as in RunPlan.
// All are pure.

/// The state before its next batch: at the start of the next epoch if less than a batch is left of
/// this one, as after a change to a larger batch.
[[nodiscard]] TrainingState before_next_batch(const BatchGeometry& geometry, TrainingState state);

/// The number of the step that completes `epochs` epochs.
[[nodiscard]] std::int64_t step_after_epochs(std::int64_t epochs, const BatchGeometry& geometry,
                                             const TrainingState& state);

/// The number of the last step: at the end of the epochs or of --max-steps.
[[nodiscard]] std::int64_t last_step_of(const Config& config, const BatchGeometry& geometry,
                                        const TrainingState& state);

/// Steps between evaluations; 0: never.
[[nodiscard]] std::int64_t evaluation_interval(const Config& config, const BatchGeometry& geometry);

/// Whether the state is evaluated before the next step.
[[nodiscard]] bool is_evaluation_due(const Config& config, std::int64_t interval,
                                     const TrainingState& state);

/// The state of loss scaling that a run starts with; nullopt unless it computes in fp16.
[[nodiscard]] std::optional<LossScale> loss_scale_of(const Config& config,
                                                     const TrainingState& state);

}  // namespace lockstep
