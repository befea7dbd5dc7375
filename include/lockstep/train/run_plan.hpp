#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/models/models.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A configuration with everything that it leaves open filled in from the data set and the ranks.
struct RunPlan {
  Config config;  ///< resolved: run_dir, classes, channels, mean, std, val_data
  ModelOptions model;
  std::int64_t global_batch = 0;
};

/// Pure. Error(usage) for what cannot go together, with the values: fewer classes than the data
/// has, other channels, images of another size. The global batch is that of a new run; a run that
/// goes on may keep another, so check_global_batch() is a call of its own.
[[nodiscard]] RunPlan resolve_run(const Config& config, const DatasetInfo& data, int world_size);

/// Error(usage) where the plan's global batch is smaller than ranks * accumulate or larger than the
/// data set.
void check_global_batch(const RunPlan& plan, const DatasetInfo& data, int world_size);

/// The global batch of a run that goes on: the checkpoint's, whatever the number of ranks.
/// Error(usage) where another one was asked for without --allow-batch-change: --global-batch-size
/// that differs, or a --batch-size or --accumulate that was changed since and gives another
/// product.
[[nodiscard]] std::int64_t resumed_global_batch(const RunPlan& plan, const Config& before,
                                                const TrainingState& state, int world_size);

/// Error(usage) with both values where model, classes, seed, data or optimizer differ from the
/// checkpoint's.
void check_resumable(const RunPlan& plan, const Config& before, const TrainingState& state,
                     std::uint32_t data_identity, std::uint32_t model_identity);

/// What training and evaluation load with; augment and shuffle as for training.
[[nodiscard]] LoaderOptions loader_options(const RunPlan& plan, InputFormat format);

}  // namespace lockstep
