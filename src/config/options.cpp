#include "lockstep/config/options.hpp"

#include "lockstep/config/option_conditions.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text_file.hpp"
#include "option_groups.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

namespace lockstep {
namespace {

const std::string config_option = "config";
const std::string print_option_name = "print-config";

/// Error(usage) if one source sets both options of an exclusive pair.
void refuse_both(const Config& config, const std::string& where) {
  const OptionTable<Config>& table = train_options();
  for (const auto& pair : table.exclusive_pairs()) {
    if (!pair.both(config)) continue;
    fail(ExitStatus::usage,
         "--{} {} and --{} {} are both given{} (each excludes the other); drop one", pair.one,
         table.get(config, pair.one), pair.other, table.get(config, pair.other), where);
  }
}

Config parse_file(const std::string& text, const std::string& source,
                  std::set<std::string>& given) {
  const OptionTable<Config>& table = train_options();
  Config config;
  for (const GivenOption& option : tokenize_config(text, table.names(), source)) {
    try {
      table.set(config, option);
    } catch (const Error& error) {
      throw Error(error.status(), fmt::format("{}: {}", source, error.what()));
    }
    given.insert(option.name);
  }
  return config;
}

/// Sets the options of one part of the command line. Of an exclusive pair, the part's option
/// replaces the other one of the earlier `sources`; the last of these gets the part's names.
void override_options(Config& config, const std::vector<GivenOption>& part,
                      const std::array<std::set<std::string>*, 2>& sources) {
  const OptionTable<Config>& table = train_options();
  Config alone;
  std::set<std::string> names;
  for (const GivenOption& option : part) {
    table.set(alone, option);
    table.set(config, option);
    names.insert(option.name);
  }
  refuse_both(alone, "");
  for (const auto& pair : table.exclusive_pairs()) {
    if (!pair.both(config)) continue;
    // No part sets both, so exactly one is from an earlier source.
    const std::string& earlier = names.contains(pair.one) ? pair.other : pair.one;
    table.reset(config, earlier);
    for (std::set<std::string>* source : sources) source->erase(earlier);
  }
  sources.back()->insert(names.begin(), names.end());
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

}  // namespace

ParsedCommand parse_train_options(const std::vector<std::string>& args, const FileReader& read) {
  const OptionTable<Config>& table = train_options();
  std::vector<OptionName> known = table.names();
  known.push_back({config_option, false});
  known.push_back({print_option_name, true});
  std::vector<GivenOption> line = tokenize_command_line(args, known, false).options;

  ParsedCommand command;
  std::string file;
  std::set<std::string> in_file;
  std::erase_if(line, [&](const GivenOption& option) {
    if (option.name == config_option) file = option.value;
    if (option.name == print_option_name) command.print_config = option.value == "true";
    return option.name == config_option || option.name == print_option_name;
  });
  if (!file.empty()) {
    command.config = parse_file(read ? read(file) : read_text_file(file), file, in_file);
    refuse_both(command.config, " in " + file);
  }
  std::set<std::string> on_line;
  for (auto part = line.begin(); part != line.end();) {
    const auto end = std::find_if(
        part, line.end(), [&](const GivenOption& option) { return option.part != part->part; });
    override_options(command.config, {part, end}, {&in_file, &on_line});
    part = end;
  }
  command.given = in_file;
  command.given.insert(on_line.begin(), on_line.end());
  const Config defaults = default_config(command.config.optimizer);
  for (const char* name : {"lr", "weight-decay", "eps", "clip-grad-norm"}) {
    if (command.given.contains(name)) continue;
    table.set(command.config, {name, table.get(defaults, name)});
  }
  std::erase_if(on_line, [&](const std::string& name) { return in_file.contains(name); });
  command.only_on_line = std::move(on_line);
  return command;
}

Config default_config(OptimizerKind optimizer) {
  Config config;
  config.optimizer = optimizer;
  if (has_moments(optimizer)) {
    config.lr = 1e-3;
    config.weight_decay = optimizer == OptimizerKind::adam ? 0 : 0.01;
  }
  if (optimizer == OptimizerKind::lamb) {
    config.eps = 1e-6;
    config.clip_grad_norm = 1;
  }
  return config;
}

std::string train_help(HelpDetail detail) {
  const OptionTable<Config>& table = train_options();
  std::string text =
      "usage: lockstep train --data DIR [options]\n\nTrains a network. The same command resumes "
      "where an earlier job stopped.\n\n"
      "  --config FILE   read options from a file, one name=value a line; the command line "
      "overrides it\n"
      "  --print-config  print the configuration as such a file, and exit\n"
      "  --override      options after this word replace those of the same name before it\n";
  if (detail == HelpDetail::all) return text + table.help();
  const std::set<std::string> first{"model",     "data", "synthetic", "epochs", "batch-size",
                                    "precision", "lr",   "run-dir",   "device", "save-every"};
  return text + "\n" + table.help(first) +
         fmt::format(
             "\nlockstep train --help all shows {} more: augmentation, schedules, sharding, "
             "reductions, ...\n"
             "lockstep pack creates DIR from images. Without data: lockstep train --synthetic\n",
             table.names().size() - first.size());
}

std::string print_config(const Config& config) {
  return train_options().print(config);
}

Config parse_config_text(const std::string& text) {
  std::set<std::string> given;
  return parse_file(text, "the stored configuration", given);
}

std::vector<ConfigDifference> differences(const Config& left, const Config& right) {
  std::vector<ConfigDifference> result;
  for (const OptionName& option : train_options().names()) {
    const std::string a = train_options().get(left, option.name);
    const std::string b = train_options().get(right, option.name);
    if (a != b) result.push_back({.name = option.name, .left = a, .right = b});
  }
  return result;
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
       "reads); drop it, or use --device cpu");
}

namespace {

void validate_data(const Config& config) {
  if (config.data.empty() && !config.synthetic) {
    fail(ExitStatus::usage,
         "no data (neither --data nor --synthetic is given); give --data DIR (create it from "
         "images with lockstep pack), or try --synthetic");
  }
  if (!config.data.empty() && config.synthetic) {
    fail(ExitStatus::usage,
         "--data {} and --synthetic exclude each other (training has one source); drop one",
         config.data);
  }
  if (!config.val_data.empty() && config.synthetic) {
    fail(ExitStatus::usage,
         "--val-data {} and --synthetic exclude each other (generated images have no validation "
         "split); drop one",
         config.val_data);
  }
  if (!config.stage_dir.empty() && config.synthetic) {
    fail(ExitStatus::usage,
         "--stage-dir {} and --synthetic exclude each other (generated images have no shards to "
         "copy); drop one",
         config.stage_dir);
  }
}

void validate_auto_augment(const Config& config) {
  const bool is_randaugment = config.auto_augment == AutoAugment::randaugment;
  if (is_randaugment && config.randaugment_magnitude >= config.randaugment_bins) {
    fail(ExitStatus::usage,
         "--randaugment-magnitude {} is not below --randaugment-bins {} (magnitudes are numbered "
         "from 0); lower it, or raise --randaugment-bins",
         config.randaugment_magnitude, config.randaugment_bins);
  }
}

void validate_image_sizes(const Config& config) {
  if (config.train_interpolation != ResizeFilter::bilinear &&
      config.augment != Augment::resized_crop) {
    fail(ExitStatus::usage,
         "--train-interpolation {} belongs to --augment resized-crop (--augment is {}); add it, or "
         "drop --train-interpolation",
         train_options().get(config, "train-interpolation"),
         train_options().get(config, "augment"));
  }
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

void validate_sharding(const Config& config) {
  validate_communication_dtypes(config);
  if (config.accumulate_full_gradients && config.accumulate == 1) {
    fail(ExitStatus::usage,
         "--accumulate-full-gradients needs --accumulate above 1 (--accumulate is 1); drop it");
  }
}

}  // namespace

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
  validate_auto_augment(config);
  validate_image_sizes(config);
  validate_schedule(config);
  validate_sharding(config);
  validate_local_sgd(config);
  if (config.straggler_factor > 0 && config.straggler_factor <= 1) {
    fail(ExitStatus::usage,
         "--straggler-factor {} would name ranks that are not slow (the median's own factor is 1); "
         "give more than 1, or 0",
         config.straggler_factor);
  }
}

}  // namespace lockstep
