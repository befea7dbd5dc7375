#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/optim/loss_scaler.hpp"
#include "lockstep/parallel/gradient_sync.hpp"
#include "lockstep/train/batch_geometry.hpp"

#include <cstdint>
#include <optional>

namespace lockstep {

// How a run starts, when it evaluates and ends, and its loss scale. `config` is the resolved one,
// as in RunPlan. All are pure.

/// The state before its next batch: at the start of the next epoch if less than a batch is left of
/// this one, as after a change to a larger batch.
[[nodiscard]] TrainingState before_next_batch(const BatchGeometry& geometry, TrainingState state);

/// What a run adds to the state that it starts from.
struct StartingRun {
  const Config& config;
  const BatchGeometry& geometry;
  std::uint32_t data_identity;
  const Graph& graph;
};
/// The state that a run starts with; `from`: its checkpoint's, nullopt for a new run.
[[nodiscard]] TrainingState starting_state(const StartingRun& run,
                                           const std::optional<TrainingState>& from);

/// The number of the step that completes `epochs` epochs.
[[nodiscard]] std::int64_t step_after_epochs(std::int64_t epochs, const BatchGeometry& geometry,
                                             const TrainingState& state);

/// What step `step`, after the state's, synchronises (--sync-every).
[[nodiscard]] StepSync step_sync(const Config& config, const BatchGeometry& geometry,
                                 const TrainingState& state, std::int64_t step);

/// The first step from `step` on, after the state's, that leaves all ranks with equal replicas.
[[nodiscard]] std::int64_t next_equal_step(const Config& config, const BatchGeometry& geometry,
                                           const TrainingState& state, std::int64_t step);

/// The number of the last step: at the end of the epochs or of --max-steps; with --sync-every, the
/// next one that leaves all ranks with equal replicas.
[[nodiscard]] std::int64_t last_step_of(const Config& config, const BatchGeometry& geometry,
                                        const TrainingState& state);

/// Steps between evaluations; 0: never.
[[nodiscard]] std::int64_t evaluation_interval(const Config& config, const BatchGeometry& geometry);

/// Whether the state, which is equal on all ranks, is evaluated before the next step. An evaluation
/// that was due after a local step waits for the next average.
[[nodiscard]] bool is_evaluation_due(const Config& config, std::int64_t interval,
                                     const TrainingState& state);

/// The state of loss scaling that a run starts with; nullopt unless it computes in fp16.
[[nodiscard]] std::optional<LossScale> loss_scale_of(const Config& config,
                                                     const TrainingState& state);

}  // namespace lockstep
