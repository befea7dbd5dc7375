#include "lockstep/config/option_conditions.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "option_groups.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

void validate_data(const Config& config) {
  if (config.data.empty() && !config.synthetic) {
    fail(ExitStatus::usage,
         "no data (neither --data nor --synthetic is given); give --data DIR (create it from "
         "images with lockstep pack), or try --synthetic");
  }
  if (!config.synthetic) return;
  for (const auto& [option, why] :
       {std::pair{"data", "training has one source"},
        std::pair{"val-data", "generated images have no validation split"},
        std::pair{"stage-dir", "generated images have no shards to copy"}}) {
    const std::string value = train_options().get(config, option);
    if (value.empty()) continue;
    fail(ExitStatus::usage, "--{} {} and --synthetic exclude each other ({}); drop one", option,
         value, why);
  }
}

void validate_image_sizes(const Config& config) {
  const auto& schedule = config.image_size_schedule;
  if (schedule.empty()) return;
  const std::string given = train_options().get(config, "image-size-schedule");
  const auto late =
      std::ranges::adjacent_find(schedule, std::ranges::greater_equal(), &ImageSizeChange::epoch);
  if (late != schedule.end()) {
    fail(ExitStatus::usage,
         "--image-size-schedule {} is not ascending (each epoch is later than the one before); "
         "sort it",
         given);
  }
  if (schedule.back().epoch >= config.epochs) {
    fail(ExitStatus::usage,
         "--image-size-schedule {} changes the size after {} of {} epochs (no epoch would have "
         "it); use an earlier epoch, or raise --epochs",
         given, schedule.back().epoch, config.epochs);
  }
}

void validate_schedule(const Config& config) {
  if (config.lr_schedule == LrSchedule::step && config.milestones.empty()) {
    fail(ExitStatus::usage,
         "--lr-schedule step needs --milestones (the epochs at which the rate falls); give them");
  }
  if (!std::is_sorted(config.milestones.begin(), config.milestones.end())) {
    fail(ExitStatus::usage,
         "--milestones {} are not ascending (each is later than the one before); sort them",
         fmt::join(config.milestones, ","));
  }
  if (config.lr_min > config.lr && config.lr_base_batch == 0) {
    fail(ExitStatus::usage,
         "--lr-min {} is larger than --lr {} (the cosine schedule falls from one to the other); "
         "lower it",
         config.lr_min, config.lr);
  }
  if (config.warmup_lr > config.lr && config.lr_base_batch == 0) {
    fail(ExitStatus::usage,
         "--warmup-lr {} is larger than --lr {} (the warm-up rises from one to the other); lower "
         "it",
         config.warmup_lr, config.lr);
  }
  if (config.lr_update == LrUpdate::epoch && config.warmup_epochs > 0 && config.warmup_lr == 0) {
    fail(ExitStatus::usage,
         "--lr-update epoch and --warmup-epochs {} need --warmup-lr (at 0, the first epoch would "
         "train nothing); give it",
         config.warmup_epochs);
  }
  if (config.warmup_epochs > static_cast<double>(config.epochs)) {
    fail(ExitStatus::usage,
         "--warmup-epochs {} is longer than the {} epochs of --epochs (the rate would never reach "
         "--lr); lower it",
         config.warmup_epochs, config.epochs);
  }
}

void check_normalization(const Config& config) {
  const std::size_t means = config.mean.size();
  const std::size_t deviations = config.std.size();
  if (means > 1 && deviations > 1 && means != deviations) {
    fail(ExitStatus::usage,
         "--mean has {} values and --std {} (each is one, or one a channel); give as many", means,
         deviations);
  }
  for (const auto& [name, size] : {std::pair{"mean", means}, std::pair{"std", deviations}}) {
    if (config.channels != 0 && size > 1 && static_cast<std::int64_t>(size) != config.channels) {
      fail(ExitStatus::usage,
           "--{} has {} values for --channels {} (one, or one a channel); give {}", name, size,
           config.channels, config.channels);
    }
  }
}

void validate_local_sgd(const Config& config) {
  const auto refuse = [&](const char* option, const char* why, const char* suggestion) {
    fail(ExitStatus::usage, "--sync-every {} does not go with --{} {} ({}); {}", config.sync_every,
         option, train_options().get(config, option), why, suggestion);
  };
  if (config.sync_every == 0) return;
  if (config.shard != ShardMode::none) {
    refuse("shard", "each rank needs a replica of its own", "drop one");
  }
  if (config.batch_norm == BatchNormScope::sync) {
    refuse("batch-norm", "its sums over ranks are what local steps avoid", "drop one");
  }
  if (config.precision == Precision::fp16) {
    refuse("precision", "ranks would skip different steps", "use bf16");
  }
  if (config.sync_start >= static_cast<double>(config.epochs)) {
    refuse("sync-start", "all epochs would end before", "lower it, or drop both");
  }
  const bool reduces_in_16_bits = config.grad_compression != GradCompression::none ||
                                  config.reduce_dtype == CommunicationDtype::bf16 ||
                                  config.reduce_dtype == CommunicationDtype::fp16;
  if (config.sync_start == 0 && reduces_in_16_bits) {
    fail(ExitStatus::usage,
         "--sync-every {} reduces no gradients in 16 bits (every step is local, and averages are "
         "in fp32); drop --grad-compression and --reduce-dtype, or set --sync-start",
         config.sync_every);
  }
}

}  // namespace

void refuse_both(const Config& config, const std::string& where) {
  const OptionTable<Config>& table = train_options();
  for (const auto& pair : table.exclusive_pairs()) {
    if (!pair.both(config)) continue;
    fail(ExitStatus::usage,
         "--{} {} and --{} {} are both given{} (each excludes the other); drop one", pair.one,
         table.get(config, pair.one), pair.other, table.get(config, pair.other), where);
  }
}

void validate_communication_dtypes(const Config& config) {
  const auto given = [&](const char* name) { return train_options().get(config, name); };
  const std::string compression = given("grad-compression");
  const std::string reduced = given("reduce-dtype");
  if (compression != "none" && reduced != "auto" && reduced != compression) {
    fail(ExitStatus::usage,
         "--reduce-dtype {} and --grad-compression {} (both set the data type of the reduction); "
         "drop one",
         reduced, compression);
  }
  if (config.param_dtype == CommunicationDtype::automatic) return;
  const std::string parameters = given("param-dtype");
  const std::string precision = given("precision");
  if (parameters != "fp32" && parameters != precision) {
    fail(ExitStatus::usage,
         "--param-dtype {0} does not go with --precision {1} (weights would be rounded to {0} and "
         "used as {1}); use --precision {0}, or drop --param-dtype",
         parameters, precision);
  }
}

std::string_view to_string(ConvAlgorithm algorithm) noexcept {
  return train_options().spec("conv-algorithm").choices[static_cast<std::size_t>(algorithm)];
}

void require_conv_algorithm(ConvAlgorithm algorithm, Precision precision, DeviceChoice device) {
  if (algorithm == ConvAlgorithm::winograd && device == DeviceChoice::cuda) {
    fail(ExitStatus::usage,
         "--conv-algorithm winograd does not go with --device cuda (cuDNN has its own algorithms); "
         "use auto or direct, or --device cpu");
  }
  if (algorithm == ConvAlgorithm::winograd && precision != Precision::fp32 &&
      precision != Precision::bf16) {
    fail(ExitStatus::usage,
         "--conv-algorithm winograd does not go with --precision {} (the algorithm is for CPUs, "
         "which compute in fp32 and bf16); use auto, or fp32 or bf16",
         to_string(precision));
  }
}

std::string_view to_string(Recompute recompute) noexcept {
  return train_options().spec("recompute").choices[static_cast<std::size_t>(recompute)];
}

void require_recompute(Recompute recompute, DeviceChoice device) {
  if (recompute != Recompute::norms || device != DeviceChoice::cuda) return;
  fail(ExitStatus::usage,
       "--recompute norms does not go with --device cuda (that engine keeps what its backward "
       "reads); use block, or --device cpu");
}

void validate(const Config& config) {
  train_options().check_values(config);
  refuse_both(config, "");
  require_effects(config, {});
  check_normalization(config);
  validate_data(config);
  require_conv_algorithm(config.conv_algorithm, config.precision, config.device);
  require_recompute(config.recompute, config.device);
  if (config.nesterov && config.momentum == 0) {
    fail(ExitStatus::usage, "--nesterov needs momentum (--momentum is 0); drop it");
  }
  if (config.auto_augment == AutoAugment::randaugment &&
      config.randaugment_magnitude >= config.randaugment_bins) {
    fail(ExitStatus::usage,
         "--randaugment-magnitude {} is not below --randaugment-bins {} (magnitudes are numbered "
         "from 0); lower it, or raise --randaugment-bins",
         config.randaugment_magnitude, config.randaugment_bins);
  }
  validate_image_sizes(config);
  validate_schedule(config);
  validate_communication_dtypes(config);
  if (config.accumulate_full_gradients && config.accumulate == 1) {
    fail(ExitStatus::usage,
         "--accumulate-full-gradients needs --accumulate above 1 (--accumulate is 1); drop it");
  }
  validate_local_sgd(config);
  if (config.straggler_factor > 0 && config.straggler_factor <= 1) {
    fail(ExitStatus::usage,
         "--straggler-factor {} would name ranks that are not slow (the median's own factor is 1); "
         "give more than 1, or 0",
         config.straggler_factor);
  }
}

}  // namespace lockstep
