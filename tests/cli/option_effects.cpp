// Trains a small network with each option changed, under each optimizer, schedule, augmentation,
// loss and what else other options belong to: the change must change the trained parameters, or be
// refused. With ".soak" all options of learning, else those that have a condition.
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/option_conditions.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/train/trainer.hpp"
#include "option_groups.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// A value of each option of learning that differs from the default and from the settings.
const std::map<std::string, std::string> changes{{"model", "simple-cnn"},
                                                 {"width", "16"},
                                                 {"zero-init-residual", "true"},
                                                 {"stem", "deep"},
                                                 {"shortcut", "avgpool"},
                                                 {"stochastic-depth", "0.5"},
                                                 {"image-size", "16"},
                                                 {"image-size-schedule", "16@1"},
                                                 {"classes", "12"},
                                                 {"mean", "0.3"},
                                                 {"std", "0.2"},
                                                 {"augment", "crop-flip"},
                                                 {"crop-padding", "2"},
                                                 {"train-interpolation", "bicubic"},
                                                 {"auto-augment", "trivialaugment"},
                                                 {"randaugment-ops", "3"},
                                                 {"randaugment-magnitude", "20"},
                                                 {"randaugment-bins", "11"},
                                                 {"auto-augment-interpolation", "bilinear"},
                                                 {"repeated-augmentation", "2"},
                                                 {"random-erasing", "0.9"},
                                                 {"mixup", "0.3"},
                                                 {"cutmix", "0.6"},
                                                 {"shuffle-block", "4"},
                                                 {"synthetic-samples", "48"},
                                                 {"epochs", "3"},
                                                 {"max-steps", "3"},
                                                 {"global-batch-size", "8"},
                                                 {"accumulate", "2"},
                                                 {"loss", "bce"},
                                                 {"bce-target-threshold", "0.3"},
                                                 {"label-smoothing", "0.2"},
                                                 {"precision", "bf16"},
                                                 {"optimizer", "lamb"},
                                                 {"lr", "0.02"},
                                                 {"lr-base-batch", "8"},
                                                 {"lr-schedule", "polynomial"},
                                                 {"milestones", "1.5"},
                                                 {"lr-gamma", "0.5"},
                                                 {"lr-min", "0.005"},
                                                 {"lr-power", "1"},
                                                 {"warmup-epochs", "0.5"},
                                                 {"warmup-lr", "0.005"},
                                                 {"lr-update", "epoch"},
                                                 {"momentum", "0.5"},
                                                 {"nesterov", "true"},
                                                 {"beta1", "0.5"},
                                                 {"beta2", "0.9"},
                                                 {"eps", "0.01"},
                                                 {"weight-decay", "0.1"},
                                                 {"decay-norm-and-bias", "true"},
                                                 {"freeze", "conv1.*"},
                                                 {"frozen-norms", "running"},
                                                 {"lr-scale", "fc.*=3"},
                                                 {"layer-decay", "0.5"},
                                                 {"trust-coefficient", "0.01"},
                                                 {"clip-grad-norm", "0.01"},
                                                 {"ema-decay", "0.5"},
                                                 {"ema-every", "2"}};
/// Options whose change cannot change a run on synthetic images, and why.
const std::map<std::string, std::string> excluded{
    {"data", "synthetic images have no files"},
    {"val-data", "as data"},
    {"stage-dir", "as data"},
    {"synthetic", "it is on"},
    {"channels", "another network"},
    {"eval-size", "of evaluations; synthetic images have none"},
    {"eval-crop-ratio", "of JPEG files"},
    {"eval-resize", "of JPEG files"},
    {"eval-interpolation", "of JPEG files"},
    {"batch-size", "the global batch stays"},
    {"allow-batch-change", "of resumed runs"}};

using Setting = std::vector<std::pair<std::string, std::string>>;
const std::vector<Setting> settings{{{"optimizer", "sgd"}},
                                    {{"optimizer", "adam"}},
                                    {{"optimizer", "adam"}, {"weight-decay", "0.05"}},
                                    {{"optimizer", "adamw"}},
                                    {{"optimizer", "lars"}, {"lr", "1"}},
                                    {{"optimizer", "lamb"}},
                                    {{"optimizer", "lion"}},
                                    {{"lr-schedule", "constant"}},
                                    {{"lr-schedule", "constant"}, {"warmup-epochs", "1"}},
                                    {{"lr-schedule", "step"}, {"milestones", "0.5"}},
                                    {{"lr-schedule", "polynomial"}},
                                    {{"augment", "crop-flip"}},
                                    {{"augment", "resized-crop"}},
                                    {{"auto-augment", "trivialaugment"}},
                                    {{"auto-augment", "randaugment"}},
                                    {{"loss", "bce"}},
                                    {{"loss", "bce"}, {"label-smoothing", "0.1"}},
                                    {{"loss", "mse"}},
                                    {{"mixup", "0.5"}},
                                    {{"freeze", "layer1.*,bn1.*"}},
                                    {{"ema-decay", "0.9"}}};

Config base_config(const Setting& setting) {
  std::vector<std::string> words{
      "--synthetic",     "--synthetic-samples=64", "--model=mini-resnet",    "--width=8",
      "--image-size=12", "--classes=10",           "--global-batch-size=16", "--epochs=2",
      "--threads=1",     "--loader-threads=0",     "--watchdog-seconds=0",   "--log-every=1000"};
  for (const auto& [name, value] : setting) words.push_back("--" + name + "=" + value);
  return parse_train_options(words).config;
}

/// Of the trained parameters and their average; nullopt: refused, naming one of the options.
std::optional<std::uint32_t> result_of(Job& job, Config config,
                                       const std::vector<std::string>& options,
                                       const std::string& directory) {
  config.run_dir = directory;
  std::filesystem::remove_all(directory);
  try {
    const TrainingResult result =
        train(config, {.comm = job.comm(), .grid = job.grid(), .binding = job.bind(1)});
    const Checkpoint trained = read_checkpoint(result.checkpoint, CheckpointUse::weights);
    std::uint32_t crc = 0;
    for (const std::vector<NamedTensor>* group : {&trained.model, &trained.ema}) {
      for (const NamedTensor& tensor : *group) {
        crc = crc32c(std::as_bytes(std::span(tensor.values)), crc);
      }
    }
    return crc;
  } catch (const Error& error) {
    const auto is_named = [&](const std::string& option) {
      return std::string(error.what()).find("--" + option) != std::string::npos;
    };
    if (error.status() != ExitStatus::usage || std::ranges::none_of(options, is_named)) throw;
    return std::nullopt;
  }
}

std::vector<std::string> options_to_try(bool all) {
  OptionTable<Config> learning;
  add_learning_options(learning);
  std::vector<std::string> conditional;
  for (const ConditionalOptions& of : conditional_options()) {
    conditional.insert(conditional.end(), of.options.begin(), of.options.end());
  }
  std::vector<std::string> names;
  for (const OptionName& option : learning.names()) {
    if (changes.contains(option.name) == excluded.contains(option.name)) {
      fail(ExitStatus::internal, "--{} is in none or both of the test's lists", option.name);
    }
    if (excluded.contains(option.name)) continue;
    if (all || std::ranges::count(conditional, option.name) > 0) names.push_back(option.name);
  }
  return names;
}

std::string text(const Setting& setting) {
  std::string words;
  for (const auto& [name, value] : setting) words += fmt::format("--{} {} ", name, value);
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::freopen("/dev/null", "w", stdout) == nullptr) return 1;  // what the runs print
  const bool all = argc > 1 && std::string(argv[1]) == ".soak";
  return static_cast<int>(run_job(argc, argv, [&](Job& job) {
    const OptionTable<Config>& table = train_options();
    const std::string directory =
        (std::filesystem::temp_directory_path() / fmt::format("option-effects-{}", getpid()))
            .string();
    int effective = 0;
    int refused = 0;
    int without = 0;
    for (const Setting& setting : settings) {
      const Config base = base_config(setting);
      const std::uint32_t usual = result_of(job, base, {}, directory).value();
      for (const std::string& name : options_to_try(all)) {
        Config config = base;
        table.set(config, {name, changes.at(name)});
        if (config == base) continue;
        std::vector<std::string> named{name};
        for (const auto& [option, value] : setting) named.push_back(option);
        const std::optional<std::uint32_t> changed = result_of(job, config, named, directory);
        ++(!changed ? refused : *changed == usual ? without : effective);
        if (changed != usual) continue;
        fmt::print(stderr, "--{} {} has no effect with {}\n", name, changes.at(name),
                   text(setting));
      }
    }
    std::filesystem::remove_all(directory);
    fmt::print(stderr, "{} pairs: {} change what is trained, {} are refused, {} do nothing\n",
               effective + refused + without, effective, refused, without);
    return without == 0 && effective > 0 && refused > 0 ? ExitStatus::ok : ExitStatus::internal;
  }));
}
