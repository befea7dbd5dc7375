#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/train/batch_geometry.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Height and width of encoded and synthetic images in training without --image-size.
inline constexpr std::int64_t default_image_size = 224;

/// A configuration whose unset options are resolved from the data set and the number of ranks.
struct RunPlan {
  /// Resolved: run_dir, classes, channels, mean, std, val_data, and eval_crop_ratio for JPEG
  /// images.
  Config config;
  ModelOptions model;
  ImageShape evaluation_image;  ///< input of the network in evaluations
  std::int64_t global_batch = 0;
};

/// Samples per update of a new run over all ranks.
[[nodiscard]] std::int64_t new_global_batch(const Config& config, std::int64_t world_size);

/// Pure. Error(usage), with the values, if options do not match the data: fewer classes than the
/// data set, different channels or image size, images larger than --eval-resize. The global batch
/// is a new run's; a resumed run may keep another one, so check_global_batch() is separate.
[[nodiscard]] RunPlan resolve_run(const Config& config, const DatasetInfo& data, int world_size);

/// Error(usage) if the plan's global batch is smaller than ranks * accumulate or larger than the
/// data set.
void check_global_batch(const RunPlan& plan, const DatasetInfo& data, int world_size);

/// Error(usage) if samples are mixed in pairs and micro-batches separate a pair; for engines that
/// take pixels, which mix within a micro-batch. `position`: in the epoch, of the first step.
void check_pairs(const Config& config, const BatchGeometry& geometry, std::int64_t position);

/// The global batch of a resumed run: the checkpoint's, at any number of ranks. Error(usage) if the
/// options request another one without --allow-batch-change: a different --global-batch-size, or a
/// --batch-size or --accumulate that changed since and gives another product.
[[nodiscard]] std::int64_t resumed_global_batch(const RunPlan& plan, const Config& before,
                                                const TrainingState& state, int world_size);

/// Error(usage), with both values, if model, classes, seed, data or optimizer differ from the
/// checkpoint's, or, in the middle of an epoch, the order of its samples.
void check_resumable(const RunPlan& plan, const Config& before, const TrainingState& state,
                     std::uint32_t data_identity, std::uint32_t model_identity);

/// Clears from a checkpoint's state what options that changed since make invalid: the best
/// checkpoint and the chosen convolutions. Returns a line to print for each.
[[nodiscard]] std::vector<std::string> apply_changes(const Config& before, const Config& now,
                                                     TrainingState& state);

/// Length to which evaluations resize the short side of JPEG images, in pixels.
[[nodiscard]] std::int64_t evaluation_short_side(const RunPlan& plan) noexcept;

[[nodiscard]] AutoAugmentOptions auto_augment_options(const Config& config) noexcept;
/// Loader options for training, except cores and threads; the Evaluator changes augmentation and
/// shuffle.
[[nodiscard]] LoaderOptions loader_options(const RunPlan& plan, InputFormat format);
/// As `training`, for images as they are evaluated.
[[nodiscard]] LoaderOptions evaluation_loader_options(const RunPlan& plan, LoaderOptions training);

}  // namespace lockstep
