#include "lockstep/train/run_plan.hpp"

#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::int64_t default_batch_size = 32;

/// `size` is that of --`option`.
void require_stored(const char* option, std::int64_t size, const DatasetInfo& data) {
  const std::int64_t most = std::min(data.image.height, data.image.width);
  if (data.encoded || size <= most) return;
  fail(ExitStatus::usage,
       "--{} {} is larger than the images of {}, {}x{} (stored pixels are cropped, not enlarged); "
       "pack them larger, or use at most {}",
       option, size, data.directory, data.image.height, data.image.width, most);
}

ImageShape resolve_image(const Config& config, const DatasetInfo& data) {
  if (!data.encoded && config.channels != 0 && config.channels != data.image.channels) {
    fail(ExitStatus::usage,
         "--channels is {}, but images of {} have {} (they are stored as pixels); drop it",
         config.channels, data.directory, data.image.channels);
  }
  ImageShape image = data.image;
  if (data.encoded) image.channels = config.channels != 0 ? config.channels : 3;
  // Synthetic images have the run's largest size.
  if (data.encoded || config.synthetic) image.height = image.width = default_image_size;
  if (config.image_size != 0) image.height = image.width = config.image_size;
  require_stored("image-size", config.image_size, data);
  for (const ImageSizeChange& change : config.image_size_schedule) {
    require_stored("image-size-schedule", change.size, data);
  }
  return image;
}

/// Also sets the default ratio, so that the run's checkpoints state it.
void resolve_evaluation(RunPlan& plan, const DatasetInfo& data) {
  if (const std::int64_t size = evaluation_size(plan.config); size != 0) {
    plan.evaluation_image.height = plan.evaluation_image.width = size;
  }
  Config& c = plan.config;
  const std::int64_t size = std::max(plan.evaluation_image.height, plan.evaluation_image.width);
  if (c.eval_resize != 0 && c.eval_resize < size) {
    fail(ExitStatus::usage,
         "--eval-resize {} is smaller than images of {}x{} in evaluations (they are cropped from "
         "the resized image); use {} or more, or a smaller --eval-size",
         c.eval_resize, plan.evaluation_image.height, plan.evaluation_image.width, size);
  }
  if (data.encoded && c.eval_resize == 0 && c.eval_crop_ratio == 0) {
    c.eval_crop_ratio = default_eval_crop_ratio;
  }
  const auto most = static_cast<std::int64_t>(train_options().spec("eval-resize").max);
  if (const std::int64_t resized = evaluation_short_side(plan); resized > most) {
    fail(ExitStatus::usage,
         "--eval-crop-ratio {} resizes the short side to {} for images of {} (at most {} pixels); "
         "raise it",
         c.eval_crop_ratio, resized, size, most);
  }
}

std::vector<double> per_channel(const std::vector<double>& given, const std::vector<float>& stored,
                                std::int64_t channels, const char* option) {
  std::vector<double> values = given;
  if (values.empty()) values.assign(stored.begin(), stored.end());
  if (values.size() == 1) values.assign(static_cast<std::size_t>(channels), values.front());
  if (values.size() != static_cast<std::size_t>(channels)) {
    fail(ExitStatus::usage, "--{} has {} values for {} channels ([{}]); give one, or one a channel",
         option, values.size(), channels, fmt::join(values, ", "));
  }
  return values;
}

template <typename T>
void check_same(const char* what, const T& now, const T& before) {
  if (now != before) {
    fail(ExitStatus::usage,
         "{} is {}, but the checkpoint was written with {} (a resumed run keeps it); use another "
         "--run-dir, or --resume none with it",
         what, now, before);
  }
}

}  // namespace

std::int64_t new_global_batch(const Config& config, std::int64_t world_size) {
  if (config.global_batch_size != 0) return config.global_batch_size;
  const std::int64_t batch = config.batch_size != 0 ? config.batch_size : default_batch_size;
  return batch * world_size * config.accumulate;
}

RunPlan resolve_run(const Config& config, const DatasetInfo& data, int world_size) {
  RunPlan plan;
  plan.config = config;
  Config& c = plan.config;
  if (data.samples == 0) {
    fail(ExitStatus::bad_input,
         "{} holds no samples in split {} (nothing to train on); pack it again", data.directory,
         data.split);
  }
  plan.model.image = resolve_image(config, data);
  plan.evaluation_image = plan.model.image;
  resolve_evaluation(plan, data);
  c.channels = plan.model.image.channels;
  if (config.classes != 0 && config.classes < data.classes) {
    fail(ExitStatus::usage,
         "--classes is {}, but {} has labels of {} classes (each label needs an output); use {} or "
         "more, or drop it",
         config.classes, data.directory, data.classes, data.classes);
  }
  if (config.classes == 0) c.classes = data.classes;
  plan.model.classes = c.classes;
  plan.model.width = config.width;
  plan.model.zero_init_residual = config.zero_init_residual;
  plan.model.stem = config.stem;
  plan.model.shortcut = config.shortcut;
  plan.model.stochastic_depth = config.stochastic_depth;
  plan.model.label_smoothing = config.label_smoothing;
  plan.model.loss = config.loss;
  plan.model.bce_target_threshold = config.bce_target_threshold;
  c.mean = per_channel(config.mean, data.mean, c.channels, "mean");
  c.std = per_channel(config.std, data.std, c.channels, "std");
  if (c.val_data.empty()) c.val_data = c.data;
  if (c.run_dir.empty()) c.run_dir = "runs/" + c.model;
  plan.global_batch = new_global_batch(config, world_size);
  return plan;
}

void check_global_batch(const RunPlan& plan, const DatasetInfo& data, int world_size) {
  const std::int64_t accumulate = plan.config.accumulate;
  const std::int64_t parts = world_size * accumulate;
  if (plan.global_batch < parts) {
    fail(ExitStatus::usage,
         "global batch {} is smaller than {} ranks x {} micro-steps (every rank needs at least one "
         "sample); use {} or more, or fewer ranks",
         plan.global_batch, world_size, accumulate, parts);
  }
  if (data.samples < plan.global_batch) {
    fail(ExitStatus::usage,
         "{} has {} samples in split {}, fewer than one global batch of {} ({} ranks); use a "
         "smaller --batch-size, or fewer ranks",
         data.directory, data.samples, data.split, plan.global_batch, world_size);
  }
}

void check_pairs(const Config& config, const BatchGeometry& geometry, std::int64_t position) {
  if (config.mixup == 0 && config.cutmix == 0) return;
  const std::optional<std::int64_t> between = begin_within_pair(geometry, position);
  if (!between) return;
  fail(ExitStatus::usage,
       "--mixup {} and --cutmix {} cannot mix pairs on GPUs in a global batch of {} ({} ranks x {} "
       "micro-steps: a micro-batch begins at position {}, between the two samples of a pair); use "
       "a multiple of {}, from the beginning of an epoch",
       config.mixup, config.cutmix, geometry.global_batch, geometry.world_size, geometry.accumulate,
       *between, 2 * geometry.world_size * geometry.accumulate);
}

std::int64_t resumed_global_batch(const RunPlan& plan, const Config& before,
                                  const TrainingState& state, int world_size) {
  const Config& now = plan.config;
  const bool asked = now.global_batch_size != before.global_batch_size ||
                     now.batch_size != before.batch_size || now.accumulate != before.accumulate;
  const std::int64_t wanted =
      asked || now.global_batch_size != 0 ? plan.global_batch : state.global_batch;
  if (wanted == state.global_batch) return wanted;
  if (!now.allow_batch_change) {
    fail(ExitStatus::usage,
         "a global batch of {} was asked for, but the checkpoint's is {} ({} ranks now, {} then; "
         "schedule and sample order go by it); leave the batch options as they were, or add "
         "--allow-batch-change",
         wanted, state.global_batch, world_size, state.world_size);
  }
  return wanted;
}

void check_resumable(const RunPlan& plan, const Config& before, const TrainingState& state,
                     std::uint32_t data_identity, std::uint32_t model_identity) {
  check_same("--model", plan.config.model, before.model);
  check_same("--classes", plan.config.classes, before.classes);
  check_same("--seed", plan.config.seed, before.seed);
  check_same("--optimizer", std::string_view(traits_of(plan.config.optimizer).name),
             std::string_view(traits_of(before.optimizer).name));
  if (state.position > 0) {  // else the rest of the epoch would miss samples and repeat some
    check_same("--shuffle-block", plan.config.shuffle_block, before.shuffle_block);
    check_same("--repeated-augmentation", plan.config.repeated_augmentation,
               before.repeated_augmentation);
  }
  check_same("the data set's identity", data_identity, state.data_identity);
  check_same("the network's identity (layers and shapes)", model_identity, state.model_identity);
}

std::vector<std::string> apply_changes(const Config& before, const Config& now,
                                       TrainingState& state) {
  std::vector<std::string> lines;
  // The best checkpoint is chosen by the average if there is one.
  if ((before.ema_decay > 0) != (now.ema_decay > 0)) {
    state.best_top1 = state.best_step = -1;
    lines.emplace_back("the best checkpoint is chosen anew (--ema-decay was begun or ended)");
  }
  if (before.conv_algorithm != now.conv_algorithm) state.convolutions.reset();
  return lines;
}

std::int64_t evaluation_short_side(const RunPlan& plan) noexcept {
  const Config& c = plan.config;
  if (c.eval_resize != 0) return c.eval_resize;
  return short_side_of(plan.evaluation_image,
                       c.eval_crop_ratio == 0 ? default_eval_crop_ratio : c.eval_crop_ratio);
}

AutoAugmentOptions auto_augment_options(const Config& config) noexcept {
  return {.policy = config.auto_augment,
          .ops = config.randaugment_ops,
          .magnitude = config.randaugment_magnitude,
          .bins = config.randaugment_bins,
          .interpolation = config.auto_augment_interpolation};
}

LoaderOptions loader_options(const RunPlan& plan, InputFormat format) {
  const Config& c = plan.config;
  return {.image = plan.model.image,
          .format = format,
          .mean = {c.mean.begin(), c.mean.end()},
          .std = {c.std.begin(), c.std.end()},
          .augment = c.augment,
          .filter = c.train_interpolation,
          .crop_padding = c.crop_padding,
          .auto_augment = auto_augment_options(c),
          .random_erasing = c.random_erasing,
          .mix = {.mixup = c.mixup, .cutmix = c.cutmix},
          .seed = static_cast<std::uint64_t>(c.seed),
          .batch_capacity = 0,
          .batches_ahead = 3,
          .shuffle = true,
          .shuffle_block = c.shuffle_block,
          .repeats = c.repeated_augmentation};
}

LoaderOptions evaluation_loader_options(const RunPlan& plan, LoaderOptions training) {
  training.image = plan.evaluation_image;
  training.short_side = evaluation_short_side(plan);
  training.filter = plan.config.eval_interpolation;
  return training;
}

}  // namespace lockstep
