#include "lockstep/config/option_conditions.hpp"

#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "option_groups.hpp"

#include <algorithm>

namespace lockstep {
namespace {

bool holds(const OptionCondition& condition, const Config& config) {
  const std::string value = train_options().get(config, condition.option);
  if (!condition.values.empty()) return std::ranges::count(condition.values, value) > 0;
  return !value.empty() && value != "0" && value != "none" && value != "false";
}

/// "--optimizer sgd or lars", "--ema-decay"
std::string text(const OptionCondition& condition) {
  std::string words = "--" + condition.option;
  for (std::size_t i = 0; i < condition.values.size(); ++i) {
    words += (i == 0                             ? " "
              : i + 1 == condition.values.size() ? " or "
                                                 : ", ") +
             condition.values[i];
  }
  return words;
}

[[noreturn]] void refuse(const std::string& name, const std::vector<OptionCondition>& conditions,
                         const Config& config) {
  std::string needed;
  std::string found;
  for (const OptionCondition& condition : conditions) {
    const std::string value = train_options().get(config, condition.option);
    needed += (needed.empty() ? "" : " or ") + text(condition);
    found += fmt::format("{}--{} is {}", found.empty() ? "" : ", ", condition.option,
                         value.empty() ? "not given" : value);
  }
  fail(ExitStatus::usage, "--{0} {1} belongs to {2} ({3}); add it, or drop --{0}", name,
       train_options().get(config, name), needed, found);
}

}  // namespace

const std::vector<ConditionalOptions>& conditional_options() {
  static const std::vector<ConditionalOptions> all{
      {{"momentum"}, {{"optimizer", {"sgd", "lars"}}}},
      {{"nesterov"}, {{"optimizer", {"sgd"}}}},
      {{"beta1", "beta2"}, {{"optimizer", optimizers(&OptimizerTraits::has_betas)}}},
      {{"eps"}, {{"optimizer", optimizers(&OptimizerTraits::has_moments)}}},
      {{"trust-coefficient"}, {{"optimizer", {"lars"}}}},
      {{"decay-norm-and-bias"}, {{"weight-decay"}}},
      {{"milestones", "lr-gamma"}, {{"lr-schedule", {"step"}}}},
      {{"lr-min"}, {{"lr-schedule", {"cosine"}}}},
      {{"lr-power"}, {{"lr-schedule", {"polynomial"}}}},
      {{"warmup-lr"}, {{"warmup-epochs"}}},
      {{"lr-update"}, {{"lr-schedule", {"step", "cosine", "polynomial"}}, {"warmup-epochs"}}},
      {{"crop-padding"}, {{"augment", {"crop-flip"}}}},
      {{"train-interpolation"}, {{"augment", {"resized-crop"}}}},
      {{"randaugment-ops", "randaugment-magnitude", "randaugment-bins"},
       {{"auto-augment", {"randaugment"}}}},
      {{"auto-augment-interpolation"}, {{"auto-augment", {"trivialaugment", "randaugment"}}}},
      {{"bce-target-threshold"}, {{"loss", {"bce"}}}},
      {{"bce-target-threshold"}, {{"label-smoothing"}, {"mixup"}, {"cutmix"}}},
      {{"frozen-norms"}, {{"freeze"}}},
      {{"ema-every"}, {{"ema-decay"}}},
      {{"init-head", "init-partial"}, {{"init-from"}}},
      {{"synthetic-samples"}, {{"synthetic"}}},
      {{"sync-start", "sync-momentum"}, {{"sync-every"}}},
      {{"shard-group"}, {{"shard", {"hybrid"}}}},
      {{"shard-unit", "param-dtype"}, {{"shard"}}},
      {{"accumulate-full-gradients"}, {{"shard", {"grad", "full", "hybrid"}}}},
      {{"nccl-start-seconds"}, {{"comm", {"auto", "nccl"}}}},
      {{"watchdog-interface"}, {{"watchdog-seconds"}}},
      {{"node-mttf"}, {{"save-every", {"auto"}}}},
      {{"cuda-graph", "deterministic"}, {{"device", {"auto", "cuda"}}}, false}};
  return all;
}

void require_effects(const Config& config, const std::set<std::string>& given) {
  const OptionTable<Config>& table = train_options();
  const Config defaults = default_config(config.optimizer);
  for (const auto& [options, conditions, even_defaults] : conditional_options()) {
    const auto holds_here = [&](const OptionCondition& of) { return holds(of, config); };
    if (std::ranges::any_of(conditions, holds_here)) continue;
    for (const std::string& name : options) {
      const std::string value = table.get(config, name);
      const bool is_default = value == table.get(defaults, name);
      if (is_default && !(even_defaults && given.contains(name))) continue;
      refuse(name, conditions, config);
    }
  }
}

}  // namespace lockstep
