#include "option_groups.hpp"

namespace lockstep {

// NOLINTNEXTLINE(readability-function-size): a table
void add_learning_options(OptionTable<Config>& t) {
  t.group("Model")
      .add(&Config::model, {.name = "model",
                            .help = "network: mini-resnet, resnet18, resnet34, resnet50, "
                                    "resnet101, resnet152, resnext50_32x4d, resnext101_32x8d, "
                                    "resnext101_64x4d, wide_resnet50_2, wide_resnet101_2, "
                                    "simple-cnn or mlp; resnet18 and the following have a 3x3 "
                                    "stem below 64 pixels: --stem",
                            .unit = ""})
      .add(&Config::width,
           {.name = "width",
            .help = "channels of the first convolution, hidden width of mlp; 0: the model's own",
            .unit = "",
            .min = 0,
            .max = 65536})
      .add(&Config::zero_init_residual, {.name = "zero-init-residual",
                                         .help = "start each residual block as the identity",
                                         .unit = ""})
      .add(&Config::stem, {.name = "stem",
                           .help = "first layers of a resnet; 7x7: a convolution of stride 2 and "
                                   "max pooling; 3x3: a convolution alone, for small images; "
                                   "standard: 3x3 if images are below 64 pixels, else 7x7; deep: "
                                   "three 3x3 convolutions in place of the one, as in ResNet-D",
                           .unit = "",
                           .choices = {"standard", "deep", "7x7", "3x3"}})
      .add(&Config::shortcut,
           {.name = "shortcut",
            .help = "how a resnet's shortcuts reduce the image; avgpool: 2x2 average pooling "
                    "before the 1x1 convolution, as in ResNet-D",
            .unit = "",
            .choices = {"conv", "avgpool"}})
      .add(&Config::stochastic_depth,
           {.name = "stochastic-depth",
            .help = "probability that training skips the last residual block for a sample; earlier "
                    "blocks have less, linearly from 0 for the first",
            .unit = "",
            .min = 0,
            .max = 0.999999});
  t.group("Data")
      .add(&Config::data,
           {.name = "data", .help = "directory of shards; training uses split train", .unit = ""})
      .add(&Config::val_data, {.name = "val-data",
                               .help = "directory of shards with split val; empty: that of --data",
                               .unit = ""})
      .add(&Config::image_size,
           {.name = "image-size",
            .help = "height and width of the network's input; 0: the data set's, 224 for JPEG",
            .unit = "pixels",
            .min = 0,
            .max = 16384})
      .add(
          &Config::image_size_schedule,
          {.name = "image-size-schedule",
           .help = "later sizes of training images (progressive resizing), as SIZE@EPOCHS, "
                   "comma-separated: 192@60 trains on 192x192 pixels after 60 epochs; --image-size "
                   "is the first size",
           .unit = "pixels",
           .min = 1,
           .max = 16384})
      .add(&Config::eval_size,
           {.name = "eval-size",
            .help = "height and width of the network's input in evaluations; 0: the last of "
                    "--image-size-schedule, else --image-size",
            .unit = "pixels",
            .min = 0,
            .max = 16384})
      .add(&Config::eval_crop_ratio,
           {.name = "eval-crop-ratio",
            .help = "for evaluations on JPEG images: the short side is resized to the input's size "
                    "divided by this, then the center is cropped; 0: 0.875, or as --eval-resize",
            .unit = "",
            .min = 0,
            .max = 1})
      .add(&Config::eval_resize,
           {.name = "eval-resize",
            .help = "for evaluations on JPEG images: the short side is resized to this, then the "
                    "center is cropped; 0: from --eval-crop-ratio",
            .unit = "pixels",
            .min = 0,
            .max = 16384})
      .add(&Config::eval_interpolation,
           {.name = "eval-interpolation",
            .help = "filter when evaluations resize JPEG images, as Pillow's",
            .unit = "",
            .choices = {"bilinear", "bicubic"}})
      .add(&Config::channels, {.name = "channels",
                               .help = "image channels; 0: the data set's",
                               .unit = "",
                               .min = 0,
                               .max = 1024})
      .add(&Config::classes, {.name = "classes",
                              .help = "outputs of the network; 0: the data set's",
                              .unit = "",
                              .min = 0,
                              .max = 1 << 24})
      .add(&Config::mean,
           {.name = "mean",
            .help = "channel means of pixels in [0, 1], comma-separated; empty: the data set's",
            .unit = "",
            .min = 0,
            .max = 1,
            .other_scale = 255})
      .add(&Config::std,
           {.name = "std",
            .help = "channel standard deviations, comma-separated; empty: the data set's",
            .unit = "",
            .min = 0,
            .max = 1,
            .above_min = true,
            .other_scale = 255})
      .add(&Config::augment, {.name = "augment",
                              .help = "for training images; crop-flip: pad, crop and flip; "
                                      "resized-crop: crop at a random size, resize and flip",
                              .unit = "",
                              .choices = {"none", "crop-flip", "resized-crop"}})
      .add(&Config::train_interpolation,
           {.name = "train-interpolation",
            .help = "filter when --augment resized-crop resizes, as Pillow's; random: one of the "
                    "two for each image",
            .unit = "",
            .choices = {"bilinear", "bicubic", "random"}})
      .add(&Config::crop_padding, {.name = "crop-padding",
                                   .help = "padding of --augment crop-flip",
                                   .unit = "pixels",
                                   .min = 0,
                                   .max = 4096})
      .add(&Config::auto_augment,
           {.name = "auto-augment",
            .help = "random operations on the pixels of training images after --augment; "
                    "trivialaugment: one operation of any magnitude; randaugment: several of one "
                    "magnitude",
            .unit = "",
            .choices = {"none", "trivialaugment", "randaugment"}})
      .add(&Config::randaugment_ops, {.name = "randaugment-ops",
                                      .help = "operations of randaugment on each image",
                                      .unit = "",
                                      .min = 1,
                                      .max = 64})
      .add(&Config::randaugment_magnitude,
           {.name = "randaugment-magnitude",
            .help = "magnitude of randaugment's operations; must be below --randaugment-bins",
            .unit = "",
            .min = 0,
            .max = 1023})
      .add(&Config::randaugment_bins, {.name = "randaugment-bins",
                                       .help = "number of magnitudes of randaugment",
                                       .unit = "",
                                       .min = 2,
                                       .max = 1024})
      .add(&Config::auto_augment_interpolation,
           {.name = "auto-augment-interpolation",
            .help = "interpolation when --auto-augment shears or rotates",
            .unit = "",
            .choices = {"nearest", "bilinear"}})
      .add(
          &Config::repeated_augmentation,
          {.name = "repeated-augmentation",
           .help = "copies of each sample in an epoch, each augmented differently; the epoch keeps "
                   "its length, with fewer distinct samples",
           .unit = "",
           .min = 1,
           .max = 1024})
      .add(&Config::random_erasing,
           {.name = "random-erasing",
            .help = "probability with which a random box of a training image is set to 0 after "
                    "normalization, before --mixup and --cutmix",
            .unit = "",
            .min = 0,
            .max = 1})
      .add(&Config::mixup,
           {.name = "mixup",
            .help = "mix pairs of training images and their targets, with weights from "
                    "Beta(alpha, alpha); 0: no mixup",
            .unit = "",
            .min = 0,
            .max = 1000})
      .add(&Config::cutmix,
           {.name = "cutmix",
            .help = "paste a box of a random part of the area from the other image of a pair; the "
                    "part is from Beta(alpha, alpha); with --mixup, each pair gets one of them; 0: "
                    "no CutMix",
            .unit = "",
            .min = 0,
            .max = 1000})
      .add(&Config::shuffle_block, {.name = "shuffle-block",
                                    .help = "consecutive samples that stay together in the "
                                            "shuffle; keep it well below the batch size",
                                    .unit = "samples",
                                    .min = 1})
      .add(&Config::stage_dir,
           {.name = "stage-dir",
            .help = "directory on the node's own storage: the first epoch copies shards there, "
                    "later reads use the copies; shards that do not fit are read from --data",
            .unit = ""})
      .add(&Config::synthetic,
           {.name = "synthetic", .help = "train on generated images; needs no files", .unit = ""})
      .add(&Config::synthetic_samples, {.name = "synthetic-samples",
                                        .help = "size of the generated data set",
                                        .unit = "samples",
                                        .min = 1});
  t.group("Training")
      .add(&Config::epochs,
           {.name = "epochs", .help = "passes over the data", .unit = "", .min = 1, .max = 1e6})
      .add(&Config::max_steps, {.name = "max-steps",
                                .help = "stop at this global step, with a checkpoint; 0: no limit",
                                .unit = "steps",
                                .min = 0})
      .add(&Config::batch_size,
           {.name = "batch-size",
            .help =
                "samples per rank and micro-step; 0: 32, or what follows from --global-batch-size",
            .unit = "",
            .min = 0,
            .max = 1 << 24})
      .add(&Config::global_batch_size,
           {.name = "global-batch-size",
            .help = "samples per update over all ranks; 0: batch size x ranks x accumulate",
            .unit = "",
            .min = 0,
            .max = 1 << 24})
      .add(&Config::accumulate, {.name = "accumulate",
                                 .help = "micro-steps per update",
                                 .unit = "",
                                 .min = 1,
                                 .max = 65536})
      .add(&Config::allow_batch_change, {.name = "allow-batch-change",
                                         .help = "let a resumed run use another global batch",
                                         .unit = ""})
      .add(&Config::loss,
           {.name = "loss",
            .help = "loss of training; bce: the mean of the classes' binary cross entropies; "
                    "evaluation then reports cross-entropy without smoothing",
            .unit = "",
            .choices = {"cross-entropy", "bce"}})
      .add(&Config::bce_target_threshold,
           {.name = "bce-target-threshold",
            .help = "with --loss bce: targets above it become 1, others 0; 0: targets stay",
            .unit = "",
            .min = 0,
            .max = 0.999999999})
      .add(&Config::label_smoothing,
           {.name = "label-smoothing",
            .help = "share of the target probability that is spread over all classes",
            .unit = "",
            .min = 0,
            .max = 0.999999999})
      .add(&Config::precision,
           {.name = "precision",
            .help =
                "data type of activations, their gradients and working weights; parameters, "
                "statistics and sums stay fp32; CPUs: fp32 or bf16; fp16 uses dynamic loss scaling",
            .unit = "",
            .choices = {"fp32", "tf32", "bf16", "fp16"}});
  t.exclusive({.one = "batch-size", .other = "global-batch-size", .both = {}});
  t.exclusive({.one = "eval-crop-ratio", .other = "eval-resize", .both = {}});
  add_optimizer_options(t);
}

}  // namespace lockstep
