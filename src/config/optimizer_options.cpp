#include "lockstep/config/options.hpp"
#include "option_groups.hpp"

#include <fmt/format.h>

#include <array>

namespace lockstep {
namespace {

/// "0.1; adam, adamw, lamb: 0.001": the default, and that of optimizers with another one.
std::string defaults_of(double Config::*member) {
  constexpr std::array kinds{"sgd", "adam", "adamw", "lars", "lamb"};
  const double usual = Config().*member;
  std::string text = fmt::format("{}", usual);
  double last = usual;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const double value = default_config(static_cast<OptimizerKind>(kind)).*member;
    if (value == usual) continue;
    text += value == last ? fmt::format(", {}", kinds[kind])
                          : fmt::format("; {} for {}", value, kinds[kind]);
    last = value;
  }
  return text;
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
void add_optimizer_options(OptionTable<Config>& t) {
  t.group("Optimizer")
      .add(&Config::optimizer, {.name = "optimizer",
                                .help = "update rule",
                                .unit = "",
                                .choices = {"sgd", "adam", "adamw", "lars", "lamb"}})
      .add(&Config::lr, {.name = "lr",
                         .help = "learning rate after warm-up",
                         .unit = "",
                         .min = 0,
                         .defaults = defaults_of(&Config::lr)})
      .add(&Config::lr_base_batch, {.name = "lr-base-batch",
                                    .help = "global batch that --lr is for: the rate scales "
                                            "linearly with the real one; 0: no scaling",
                                    .unit = "samples",
                                    .min = 0})
      .add(&Config::lr_schedule, {.name = "lr-schedule",
                                  .help = "learning rate over time",
                                  .unit = "",
                                  .choices = {"constant", "step", "cosine", "polynomial"}})
      .add(&Config::milestones,
           {.name = "milestones",
            .help = "where the step schedule multiplies the rate by --lr-gamma, comma-separated",
            .unit = "epochs",
            .min = 0})
      .add(&Config::lr_gamma, {.name = "lr-gamma",
                               .help = "factor at each milestone",
                               .unit = "",
                               .min = 0,
                               .max = 1,
                               .above_min = true})
      .add(
          &Config::lr_min,
          {.name = "lr-min",
           .help = "learning rate at which the cosine schedule ends; not scaled by --lr-base-batch",
           .unit = "",
           .min = 0})
      .add(&Config::lr_power, {.name = "lr-power",
                               .help = "exponent of the polynomial schedule",
                               .unit = "",
                               .min = 0,
                               .above_min = true})
      .add(&Config::warmup_epochs, {.name = "warmup-epochs",
                                    .help = "length of the linear warm-up from --warmup-lr",
                                    .unit = "epochs",
                                    .min = 0})
      .add(&Config::warmup_lr,
           {.name = "warmup-lr",
            .help = "learning rate at which the warm-up starts; not scaled by --lr-base-batch",
            .unit = "",
            .min = 0})
      .add(&Config::lr_update,
           {.name = "lr-update",
            .help = "when the learning rate changes: each step, or at the start of each epoch, as "
                    "in torchvision's references and timm",
            .unit = "",
            .choices = {"step", "epoch"}})
      .add(&Config::momentum, {.name = "momentum",
                               .help = "momentum of sgd and lars",
                               .unit = "",
                               .min = 0,
                               .max = 0.999999999})
      .add(&Config::nesterov,
           {.name = "nesterov", .help = "Nesterov momentum, for sgd only", .unit = ""})
      .add(&Config::beta1, {.name = "beta1",
                            .help = "decay of the first moment of adam, adamw and lamb",
                            .unit = "",
                            .min = 0,
                            .max = 0.999999999})
      .add(&Config::beta2, {.name = "beta2",
                            .help = "decay of the second moment of adam, adamw and lamb",
                            .unit = "",
                            .min = 0,
                            .max = 0.999999999})
      .add(&Config::eps, {.name = "eps",
                          .help = "added to the divisor of adam, adamw and lamb",
                          .unit = "",
                          .min = 0,
                          .above_min = true,
                          .defaults = defaults_of(&Config::eps)})
      .add(&Config::weight_decay, {.name = "weight-decay",
                                   .help = "decay of weights: an L2 penalty for sgd, adam and "
                                           "lars, decoupled for adamw and lamb",
                                   .unit = "",
                                   .min = 0,
                                   .defaults = defaults_of(&Config::weight_decay)})
      .add(&Config::decay_norm_and_bias,
           {.name = "decay-norm-and-bias",
            .help = "apply --weight-decay to norm and bias parameters too",
            .unit = ""})
      .add(&Config::freeze,
           {.name = "freeze",
            .help = "parameters that are not trained: patterns of names, with * and ?, "
                    "comma-separated, for example conv1.*,layer1.*",
            .unit = ""})
      .add(&Config::frozen_norms,
           {.name = "frozen-norms",
            .help = "statistics in batch norms whose weight and bias --freeze freezes: of the "
                    "batch, which they use and update, or running, which stay as they are",
            .unit = "",
            .choices = {"batch", "running"}})
      .add(&Config::lr_scale,
           {.name = "lr-scale",
            .help = "factors on the learning rate of some parameters: PATTERN=FACTOR, "
                    "comma-separated, for example fc.*=10; the last matching pattern applies",
            .unit = ""})
      .add(&Config::trust_coefficient, {.name = "trust-coefficient",
                                        .help = "trust coefficient of lars",
                                        .unit = "",
                                        .min = 0,
                                        .above_min = true})
      .add(&Config::clip_grad_norm,
           {.name = "clip-grad-norm",
            .help = "largest norm of all gradients, which are scaled down to it; 0: no clipping",
            .unit = "",
            .min = 0,
            .defaults = defaults_of(&Config::clip_grad_norm)})
      .add(&Config::ema_decay,
           {.name = "ema-decay",
            .help = "also keep a moving average of the weights and running statistics with this "
                    "decay, evaluate it too, and choose the best checkpoint by it; 0: none",
            .unit = "",
            .min = 0,
            .max = 0.999999999})
      .add(&Config::ema_every,
           {.name = "ema-every",
            .help = "updates of the weights per update of the average of --ema-decay",
            .unit = "steps",
            .min = 1});
}

}  // namespace lockstep
