#include "lockstep/config/unlikely_values.hpp"

#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {

std::vector<std::string> unlikely_values(const Config& config, std::int64_t global_batch) {
  std::vector<std::string> warnings;
  const double scale = config.lr_base_batch > 0 ? static_cast<double>(global_batch) /
                                                      static_cast<double>(config.lr_base_batch)
                                                : 1;
  const double lr = config.lr * scale;
  // LARS and LAMB scale each layer's step to its weights, so their rates are larger.
  const OptimizerTraits& traits = traits_of(config.optimizer);
  const double largest = traits.has_trust_ratio ? 100 : traits.has_betas ? 0.5 : 20;
  if (lr > largest) {
    warnings.push_back(fmt::format(
        "the learning rate is {:.6g} (--lr {}{}; with --optimizer {}, rates above {} diverge); is "
        "it in another unit?",
        lr, config.lr, scale == 1 ? "" : ", scaled by --lr-base-batch",
        train_options().get(config, "optimizer"), largest));
  }
  if (!traits.has_trust_ratio && config.optimizer != OptimizerKind::adam &&
      lr * config.weight_decay >= 0.5) {
    warnings.push_back(fmt::format(
        "--weight-decay {} takes {:.3g} of each weight at each step (the product with the learning "
        "rate, {:.6g}); usual are 0.0001 for sgd and 0.05 for adamw",
        config.weight_decay, lr * config.weight_decay, lr));
  }
  if (!config.milestones.empty() &&
      config.milestones.front() >= static_cast<double>(config.epochs)) {
    warnings.push_back(fmt::format(
        "--milestones {} are not before the end of {} epochs, so the rate never falls (they are in "
        "epochs, not in steps)",
        fmt::join(config.milestones, ","), config.epochs));
  }
  if (config.ema_decay > 0 && config.ema_decay < 0.5) {
    warnings.push_back(fmt::format(
        "--ema-decay {} averages over less than two updates (the share that the average "
        "keeps, not that of new weights); usual is 0.999 and more",
        config.ema_decay));
  }
  return warnings;
}

}  // namespace lockstep
