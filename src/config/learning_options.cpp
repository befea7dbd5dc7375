#include "lockstep/config/options.hpp"
#include "option_groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

/// "0.1; 0.001 for adam, adamw, lamb": the default, and that of optimizers with another one.
std::string defaults_of(double Config::*member) {
  const double usual = Config().*member;
  std::string text = fmt::format("{}", usual);
  double last = usual;
  for (std::size_t kind = 0; kind < optimizer_traits.size(); ++kind) {
    const char* const name = optimizer_traits[kind].name;
    const double value = default_config(static_cast<OptimizerKind>(kind)).*member;
    if (value == usual) continue;
    text += value == last ? fmt::format(", {}", name) : fmt::format("; {} for {}", value, name);
    last = value;
  }
  return text;
}

}  // namespace

std::vector<std::string> optimizers(bool OptimizerTraits::*trait) {
  std::vector<std::string> names;
  for (const OptimizerTraits& each : optimizer_traits) {
    if (trait == nullptr || each.*trait) names.emplace_back(each.name);
  }
  return names;
}

namespace {

/// "adam, adamw and lamb": the optimizers with a trait.
std::string listed(bool OptimizerTraits::*trait) {
  const std::vector<std::string> names = optimizers(trait);
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

OptionSpec loss_option() {
  OptionSpec spec{.name = "loss", .help = "loss of training"};
  for (const LossOption& loss : loss_options) {
    spec.help += fmt::format("; {}: {}", loss.name, loss.help);
    spec.choices.emplace_back(loss.name);
  }
  spec.help +=
      fmt::format("; with any other loss than {0}, evaluation reports {0} without smoothing",
                  loss_options.front().name);
  return spec;
}

// NOLINTNEXTLINE(readability-function-size): a table
void add_optimizer_options(OptionTable<Config>& t) {
  t.group("Optimizer")
      .add(&Config::optimizer, "optimizer", "update rule", {.choices = optimizers()})
      .add(&Config::lr, "lr", "learning rate after warm-up",
           {.min = 0, .defaults = defaults_of(&Config::lr)})
      .add(&Config::lr_base_batch, "lr-base-batch",
           "global batch that --lr is for: the rate scales linearly with the real one; 0: no "
           "scaling",
           {.unit = "samples", .min = 0})
      .add(&Config::lr_schedule, "lr-schedule", "learning rate over time",
           {.choices = {"constant", "step", "cosine", "polynomial"}})
      .add(&Config::milestones, "milestones",
           "where the step schedule multiplies the rate by --lr-gamma, comma-separated",
           {.unit = "epochs", .min = 0})
      .add(&Config::lr_gamma, "lr-gamma", "factor at each milestone",
           {.min = 0, .max = 1, .above_min = true})
      .add(&Config::lr_min, "lr-min",
           "learning rate at which the cosine schedule ends; not scaled by --lr-base-batch",
           {.min = 0})
      .add(&Config::lr_power, "lr-power", "exponent of the polynomial schedule",
           {.min = 0, .above_min = true})
      .add(&Config::warmup_epochs, "warmup-epochs", "length of the linear warm-up from --warmup-lr",
           {.unit = "epochs", .min = 0})
      .add(&Config::warmup_lr, "warmup-lr",
           "learning rate at which the warm-up starts; not scaled by --lr-base-batch", {.min = 0})
      .add(&Config::lr_update, "lr-update",
           "when the learning rate changes: each step, or at the start of each epoch, as in "
           "torchvision's references and timm",
           {.choices = {"step", "epoch"}})
      .add(&Config::momentum, "momentum", "momentum of sgd and lars",
           {.min = 0, .max = 0.999999999})
      .add(&Config::nesterov, "nesterov", "Nesterov momentum, for sgd only")
      .add(&Config::beta1, "beta1", "coefficient beta1 of " + listed(&OptimizerTraits::has_betas),
           {.min = 0, .max = 0.999999999})
      .add(&Config::beta2, "beta2", "coefficient beta2 of " + listed(&OptimizerTraits::has_betas),
           {.min = 0, .max = 0.999999999, .defaults = defaults_of(&Config::beta2)})
      .add(&Config::eps, "eps", "added to the divisor of " + listed(&OptimizerTraits::has_moments),
           {.min = 0, .above_min = true, .defaults = defaults_of(&Config::eps)})
      .add(&Config::weight_decay, "weight-decay",
           "decay of weights: an L2 penalty, but decoupled for " +
               listed(&OptimizerTraits::decouples_decay),
           {.min = 0, .defaults = defaults_of(&Config::weight_decay)})
      .add(&Config::decay_norm_and_bias, "decay-norm-and-bias",
           "apply --weight-decay to norms, biases and embeddings, too")
      .add(&Config::freeze, "freeze",
           "parameters that are not trained: patterns of names, with * and ?, comma-separated, for "
           "example conv1.*,layer1.*")
      .add(&Config::frozen_norms, "frozen-norms",
           "statistics in batch norms whose weight and bias --freeze freezes: of the batch, which "
           "they use and update, or running, which stay as they are",
           {.choices = {"batch", "running"}})
      .add(&Config::lr_scale, "lr-scale",
           "factors on the learning rate of some parameters: PATTERN=FACTOR, comma-separated, for "
           "example fc.*=10; the last matching pattern applies, in addition to --layer-decay")
      .add(&Config::layer_decay, "layer-decay",
           "factor on the learning rate from each block to the one before it, as timm's option of "
           "this name: the last linear layer has the whole rate; 1: none",
           {.min = 0, .max = 1, .above_min = true})
      .add(&Config::trust_coefficient, "trust-coefficient", "trust coefficient of lars",
           {.min = 0, .above_min = true})
      .add(&Config::clip_grad_norm, "clip-grad-norm",
           "largest norm of all gradients, which are scaled down to it; 0: no clipping",
           {.min = 0, .defaults = defaults_of(&Config::clip_grad_norm)})
      .add(&Config::ema_decay, "ema-decay",
           "also keep a moving average of the weights and running statistics with this decay, "
           "evaluate it too, and choose the best checkpoint by it; 0: none",
           {.min = 0, .max = 0.999999999})
      .add(&Config::ema_every, "ema-every",
           "updates of the weights per update of the average of --ema-decay",
           {.unit = "steps", .min = 1});
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
void add_learning_options(OptionTable<Config>& t) {
  t.group("Model")
      .add(
          &Config::model, "model",
          "network: mini-resnet, resnet18, resnet34, resnet50, resnet101, resnet152, "
          "resnext50_32x4d, resnext101_32x8d, resnext101_64x4d, wide_resnet50_2, wide_resnet101_2, "
          "mini-vit, vit_b_16, vit_b_32, vit_l_16, vit_l_32, vit_h_14, simple-cnn or mlp; resnet18 "
          "and the following resnets have a 3x3 stem below 64 pixels (--stem)")
      .add(&Config::width, "width",
           "channels of the first convolution, or of a vit's tokens; hidden width of mlp; 0: the "
           "model's own",
           {.min = 0, .max = 65536})
      .add(&Config::zero_init_residual, "zero-init-residual",
           "start each residual block as the identity")
      .add(&Config::stem, "stem",
           "first layers of a resnet; 7x7: a convolution of stride 2 and max pooling; 3x3: a "
           "convolution alone, for small images; standard: 3x3 if images are below 64 pixels, else "
           "7x7; deep: three 3x3 convolutions in place of the one, as in ResNet-D",
           {.choices = {"standard", "deep", "7x7", "3x3"}})
      .add(&Config::shortcut, "shortcut",
           "how a resnet's shortcuts reduce the image; avgpool: 2x2 average pooling before the 1x1 "
           "convolution, as in ResNet-D",
           {.choices = {"conv", "avgpool"}})
      .add(&Config::stochastic_depth, "stochastic-depth",
           "probability that training skips the last residual block for a sample; earlier blocks "
           "have less, linearly from 0 for the first",
           {.min = 0, .max = 0.999999});
  t.group("Data")
      .add(&Config::data, "data", "directory of shards; training uses split train")
      .add(&Config::val_data, "val-data",
           "directory of shards with split val; empty: that of --data")
      .add(&Config::image_size, "image-size",
           "height and width of the network's input; 0: the data set's, 224 for JPEG",
           {.unit = "pixels", .min = 0, .max = 16384})
      .add(
          &Config::image_size_schedule, "image-size-schedule",
          "later sizes of training images (progressive resizing), as SIZE@EPOCHS, comma-separated: "
          "192@60 trains on 192x192 pixels after 60 epochs; --image-size is the first size",
          {.unit = "pixels", .min = 1, .max = 16384})
      .add(&Config::eval_size, "eval-size",
           "height and width of the network's input in evaluations; 0: the last of "
           "--image-size-schedule, else --image-size",
           {.unit = "pixels", .min = 0, .max = 16384})
      .add(&Config::eval_crop_ratio, "eval-crop-ratio",
           "for evaluations on JPEG images: the short side is resized to the input's size divided "
           "by this, then the center is cropped; 0: 0.875, or as --eval-resize",
           {.min = 0, .max = 1})
      .add(&Config::eval_resize, "eval-resize",
           "for evaluations on JPEG images: the short side is resized to this, then the center is "
           "cropped; 0: from --eval-crop-ratio",
           {.unit = "pixels", .min = 0, .max = 16384})
      .add(&Config::eval_interpolation, "eval-interpolation",
           "filter when evaluations resize JPEG images, as Pillow's",
           {.choices = {"bilinear", "bicubic"}})
      .add(&Config::channels, "channels", "image channels; 0: the data set's",
           {.min = 0, .max = 1024})
      .add(&Config::classes, "classes", "outputs of the network; 0: the data set's",
           {.min = 0, .max = 1 << 24})
      .add(&Config::mean, "mean",
           "channel means of pixels in [0, 1], comma-separated; empty: the data set's",
           {.min = 0, .max = 1, .other_scale = 255})
      .add(&Config::std, "std",
           "channel standard deviations, comma-separated; empty: the data set's",
           {.min = 0, .max = 1, .above_min = true, .other_scale = 255})
      .add(&Config::augment, "augment",
           "for training images; crop-flip: pad, crop and flip; resized-crop: crop at a random "
           "size, resize and flip",
           {.choices = {"none", "crop-flip", "resized-crop"}})
      .add(&Config::train_interpolation, "train-interpolation",
           "filter when --augment resized-crop resizes, as Pillow's; random: one of the two for "
           "each image",
           {.choices = {"bilinear", "bicubic", "random"}})
      .add(&Config::crop_padding, "crop-padding", "padding of --augment crop-flip",
           {.unit = "pixels", .min = 0, .max = 4096})
      .add(&Config::auto_augment, "auto-augment",
           "random operations on the pixels of training images after --augment; trivialaugment: "
           "one operation of any magnitude; randaugment: several of one magnitude",
           {.choices = {"none", "trivialaugment", "randaugment"}})
      .add(&Config::randaugment_ops, "randaugment-ops", "operations of randaugment on each image",
           {.min = 1, .max = 64})
      .add(&Config::randaugment_magnitude, "randaugment-magnitude",
           "magnitude of randaugment's operations; must be below --randaugment-bins",
           {.min = 0, .max = 1023})
      .add(&Config::randaugment_bins, "randaugment-bins", "number of magnitudes of randaugment",
           {.min = 2, .max = 1024})
      .add(&Config::auto_augment_interpolation, "auto-augment-interpolation",
           "interpolation when --auto-augment shears or rotates",
           {.choices = {"nearest", "bilinear"}})
      .add(&Config::repeated_augmentation, "repeated-augmentation",
           "copies of each sample in an epoch, each augmented differently; the epoch keeps its "
           "length, with fewer distinct samples",
           {.min = 1, .max = 1024})
      .add(&Config::random_erasing, "random-erasing",
           "probability with which a random box of a training image is set to 0 after "
           "normalization, before --mixup and --cutmix",
           {.min = 0, .max = 1})
      .add(&Config::mixup, "mixup",
           "mix pairs of training images and their targets, with weights from Beta(alpha, alpha); "
           "0: no mixup",
           {.min = 0, .max = 1000})
      .add(&Config::cutmix, "cutmix",
           "paste a box of a random part of the area from the other image of a pair; the part is "
           "from Beta(alpha, alpha); with --mixup, each pair gets one of them; 0: no CutMix",
           {.min = 0, .max = 1000})
      .add(&Config::shuffle_block, "shuffle-block",
           "consecutive samples that stay together in the shuffle; keep it well below the batch "
           "size",
           {.unit = "samples", .min = 1})
      .add(&Config::stage_dir, "stage-dir",
           "directory on the node's own storage: the first epoch copies shards there, later reads "
           "use the copies; shards that do not fit are read from --data")
      .add(&Config::synthetic, "synthetic", "train on generated images; needs no files")
      .add(&Config::synthetic_samples, "synthetic-samples", "size of the generated data set",
           {.unit = "samples", .min = 1});
  t.group("Training")
      .add(&Config::epochs, "epochs", "passes over the data", {.min = 1, .max = 1e6})
      .add(&Config::max_steps, "max-steps",
           "stop at this global step, with a checkpoint; 0: no limit", {.unit = "steps", .min = 0})
      .add(&Config::batch_size, "batch-size",
           "samples per rank and micro-step; 0: 32, or what follows from --global-batch-size",
           {.min = 0, .max = 1 << 24})
      .add(&Config::global_batch_size, "global-batch-size",
           "samples per update over all ranks; 0: batch size x ranks x accumulate",
           {.min = 0, .max = 1 << 24})
      .add(&Config::accumulate, "accumulate", "micro-steps per update", {.min = 1, .max = 65536})
      .add(&Config::allow_batch_change, "allow-batch-change",
           "let a resumed run use another global batch")
      .add(&Config::loss, loss_option())
      .add(&Config::bce_target_threshold, "bce-target-threshold",
           "with --loss bce: targets above it become 1, others 0; 0: targets stay",
           {.min = 0, .max = 0.999999999})
      .add(&Config::label_smoothing, "label-smoothing",
           "share of the target probability that is spread over all classes",
           {.min = 0, .max = 0.999999999})
      .add(&Config::precision, "precision",
           "data type of activations, their gradients and working weights; parameters, statistics "
           "and sums stay fp32; CPUs: fp32 or bf16; fp16 uses dynamic loss scaling",
           {.choices = {"fp32", "tf32", "bf16", "fp16"}});
  t.exclusive({.one = "batch-size", .other = "global-batch-size", .both = {}});
  t.exclusive({.one = "eval-crop-ratio", .other = "eval-resize", .both = {}});
  add_optimizer_options(t);
}

}  // namespace lockstep
