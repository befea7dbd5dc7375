#include "lockstep/config/options.hpp"

#include "lockstep/config/option_table.hpp"

namespace lockstep {
namespace {

// NOLINTNEXTLINE(readability-function-size): a table
OptionTable<Config> make_table() {
  OptionTable<Config> t;
  t.group("Model")
      .add(&Config::model, {.name = "model",
                            .help = "network: mini-resnet, resnet18, resnet34, resnet50, "
                                    "resnet101, resnet152, resnext50_32x4d, simple-cnn or mlp",
                            .unit = ""})
      .add(&Config::width,
           {.name = "width",
            .help = "channels of the first convolution, hidden width of mlp; 0: the model's own",
            .unit = "",
            .min = 0,
            .max = 65536})
      .add(&Config::zero_init_residual, {.name = "zero-init-residual",
                                         .help = "start each residual block as the identity",
                                         .unit = ""});
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
      .add(&Config::eval_size,
           {.name = "eval-size",
            .help = "height and width of the network's input in evaluations; 0: --image-size",
            .unit = "pixels",
            .min = 0,
            .max = 16384})
      .add(&Config::eval_crop_ratio,
           {.name = "eval-crop-ratio",
            .help = "for evaluations on JPEG images: the short side is resized to the input's size "
                    "divided by this, then the center is cropped",
            .unit = "",
            .min = 0,
            .max = 1,
            .above_min = true})
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
            .unit = ""})
      .add(&Config::std,
           {.name = "std",
            .help = "channel standard deviations, comma-separated; empty: the data set's",
            .unit = "",
            .min = 0,
            .above_min = true})
      .add(&Config::augment, {.name = "augment",
                              .help = "for training images; crop-flip: pad, crop and flip; "
                                      "resized-crop: crop at a random size, resize and flip",
                              .unit = "",
                              .choices = {"none", "crop-flip", "resized-crop"}})
      .add(&Config::crop_padding, {.name = "crop-padding",
                                   .help = "padding of --augment crop-flip",
                                   .unit = "pixels",
                                   .min = 0,
                                   .max = 4096})
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
            .max = 1})
      .add(&Config::precision,
           {.name = "precision",
            .help =
                "data type of activations, their gradients and working weights; parameters, "
                "statistics and sums stay fp32; CPUs: fp32 or bf16; fp16 uses dynamic loss scaling",
            .unit = "",
            .choices = {"fp32", "tf32", "bf16", "fp16"}});
  t.exclusive({.one = "batch-size", .other = "global-batch-size", .both = {}});
  t.group("Optimizer")
      .add(&Config::optimizer, {.name = "optimizer",
                                .help = "update rule",
                                .unit = "",
                                .choices = {"sgd", "adam", "adamw", "lars", "lamb"}})
      .add(&Config::lr, {.name = "lr", .help = "learning rate after warm-up", .unit = "", .min = 0})
      .add(&Config::lr_base_batch, {.name = "lr-base-batch",
                                    .help = "global batch that --lr is for: the rate scales "
                                            "linearly with the real one; 0: no scaling",
                                    .unit = "samples",
                                    .min = 0})
      .add(&Config::lr_schedule, {.name = "lr-schedule",
                                  .help = "learning rate over time, set at each step",
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
                                    .help = "length of the linear warm-up from 0",
                                    .unit = "epochs",
                                    .min = 0})
      .add(&Config::momentum,
           {.name = "momentum", .help = "momentum of sgd and lars", .unit = "", .min = 0, .max = 1})
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
                          .above_min = true})
      .add(&Config::weight_decay, {.name = "weight-decay",
                                   .help = "decay of weights: an L2 penalty for sgd, adam and "
                                           "lars, decoupled for adamw and lamb",
                                   .unit = "",
                                   .min = 0})
      .add(&Config::decay_norm_and_bias,
           {.name = "decay-norm-and-bias",
            .help = "apply --weight-decay to norm and bias parameters too",
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
            .min = 0});
  t.group("Communication")
      .add(&Config::comm,
           {.name = "comm",
            .help = "how ranks reduce gradients: nccl on GPUs; shared: through memory shared by "
                    "CPU ranks on one host; mpi: CPU ranks, or GPUs through host memory, where "
                    "ranks may share a GPU; auto: nccl on GPUs, shared on one host, else mpi",
            .unit = "",
            .choices = {"auto", "mpi", "shared", "nccl"}})
      .add(&Config::batch_norm, {.name = "batch-norm",
                                 .help = "batch statistics of each rank's samples, averaged for "
                                         "evaluation (local), or of all ranks' samples (sync)",
                                 .unit = "",
                                 .choices = {"local", "sync"}})
      .add(&Config::bucket_mb,
           {.name = "bucket-mb",
            .help = "size of a bucket: gradients that one all-reduce sums during backward",
            .unit = "MiB",
            .min = 0,
            .max = 1e6,
            .above_min = true})
      .add(&Config::grad_compression, {.name = "grad-compression",
                                       .help = "reduce gradients in 16 bits; each addition rounds",
                                       .unit = "",
                                       .choices = {"none", "fp16", "bf16"}})
      .add(&Config::reduce_dtype,
           {.name = "reduce-dtype",
            .help = "data type of the gradient reduction, like FSDP's reduce_dtype; auto: that of "
                    "--grad-compression, else fp32",
            .unit = "",
            .choices = {"auto", "fp32", "bf16", "fp16"}})
      .add(&Config::shard,
           {.name = "shard",
            .help = "shard optimizer state (optimizer: ZeRO-1), gradients too (grad: ZeRO-2), "
                    "parameters too (full: ZeRO-3, FSDP); hybrid: as full, within shard groups",
            .unit = "",
            .choices = {"none", "optimizer", "grad", "full", "hybrid"}})
      .add(&Config::param_dtype,
           {.name = "param-dtype",
            .help =
                "with --shard: data type of all-gathered weights, like FSDP's param_dtype; biases "
                "and norms stay fp32; auto: that of --precision if it has 16 bits, else fp32",
            .unit = "",
            .choices = {"auto", "fp32", "bf16", "fp16"}})
      .add(&Config::shard_group,
           {.name = "shard-group",
            .help = "size of the shard group with --shard hybrid; 0: the ranks of a node",
            .unit = "ranks",
            .min = 0,
            .max = 1e6})
      .add(&Config::shard_unit,
           {.name = "shard-unit",
            .help = "what is gathered and reduced as one unit: block, stage, or layers with at "
                    "least N parameters together (size:N); auto: block, or with --shard optimizer "
                    "as many blocks as fit in --bucket-mb",
            .unit = ""})
      .add(&Config::accumulate_full_gradients,
           {.name = "accumulate-full-gradients",
            .help = "with --shard grad or full and --accumulate: keep unsharded gradients and "
                    "reduce them once per step, not in every micro-step",
            .unit = ""});
  t.group("Run")
      .add(&Config::seed, {.name = "seed",
                           .help = "seed of initial weights, sample order and augmentation",
                           .unit = "",
                           .min = 0})
      .add(&Config::run_dir,
           {.name = "run-dir", .help = "directory of the run; empty: runs/MODEL", .unit = ""})
      .add(&Config::resume,
           {.name = "resume",
            .help = "auto: from the newest valid checkpoint, if there is one; none: start anew, an "
                    "error if there is one; or a checkpoint file",
            .unit = ""})
      .add(&Config::init_from, {.name = "init-from",
                                .help = "checkpoint whose weights a new run starts from",
                                .unit = ""})
      .add(&Config::init_head,
           {.name = "init-head",
            .help = "keep the last layer of --init-from, or initialize a new one",
            .unit = "",
            .choices = {"keep", "new"}})
      .add(&Config::save_every, {.name = "save-every",
                                 .help = "interval of checkpoints, in addition to those at epoch "
                                         "ends: 500 (steps), 90s, 10min or 2h; 0: only those",
                                 .unit = ""})
      .add(&Config::keep, {.name = "keep",
                           .help = "newest checkpoints to keep, in addition to the best",
                           .unit = "",
                           .min = 1,
                           .max = 1e6})
      .add(&Config::eval_every, {.name = "eval-every",
                                 .help = "interval of evaluation on split val; 0: never",
                                 .unit = "epochs",
                                 .min = 0})
      .add(&Config::log_every,
           {.name = "log-every", .help = "interval of lines of metrics", .unit = "steps", .min = 1})
      .add(&Config::log_ranks,
           {.name = "log-ranks", .help = "let every rank print, not only rank 0", .unit = ""})
      .add(&Config::progress, {.name = "progress",
                               .help = "auto: a live bar if standard error is a terminal with no "
                                       "launcher in between, else lines; bar, plain: always that",
                               .unit = "",
                               .choices = {"auto", "bar", "plain"}})
      .add(&Config::profile_steps,
           {.name = "profile-steps",
            .help = "steps to trace, such as 10:12; the trace of all ranks is written to the run "
                    "directory and opens in Perfetto; empty: no trace",
            .unit = ""});
  // --init-from only applies to a fresh run: it is compatible with --resume auto and none, but not
  // with a checkpoint file.
  t.exclusive({.one = "resume", .other = "init-from", .both = [](const Config& config) {
                 return config.resume != "auto" && config.resume != "none" &&
                        !config.init_from.empty();
               }});
  t.group("Faults")
      .add(&Config::watchdog_seconds,
           {.name = "watchdog-seconds",
            .help = "after this time without progress, name the late rank, its host and its phase, "
                    "and end the job with status 70; 0: never",
            .unit = "seconds",
            .min = 0,
            .max = 1e6})
      .add(
          &Config::watchdog_interface,
          {.name = "watchdog-interface",
           .help =
               "network of the watchdog's connections: a comma-separated list of interface names "
               "or networks such as 10.1.0.0/16, of which a host uses the first it has; empty: any",
           .unit = ""})
      .add(&Config::time_limit,
           {.name = "time-limit",
            .help = "save and stop with status 75 before this time ends: 90s, 10min or 2h; a Slurm "
                    "job's own limit applies too; 0: only that",
            .unit = ""})
      .add(&Config::check_replicas_every,
           {.name = "check-replicas-every",
            .help = "interval of comparing all ranks' parameters; 0: never",
            .unit = "steps",
            .min = 0})
      .add(&Config::straggler_factor, {.name = "straggler-factor",
                                       .help = "name the ranks whose steps take this many times "
                                               "the median rank's, at each epoch's end; 0: never",
                                       .unit = "",
                                       .min = 0,
                                       .max = 1e6})
      .add(
          &Config::debug_collectives,
          {.name = "debug-collectives",
           .help = "check before each collective that all ranks agree on its kind, size and number",
           .unit = ""})
      .add(&Config::wait_for_debugger,
           {.name = "wait-for-debugger",
            .help = "rank that prints its host and process id and waits for a debugger; -1: none",
            .unit = "",
            .min = -1,
            .max = 1 << 24});
  t.group("Machine")
      .add(&Config::device, {.name = "device",
                             .help = "what to compute on; auto: GPUs if all ranks have one",
                             .unit = "",
                             .choices = {"auto", "cpu", "cuda"}})
      .add(
          &Config::conv_algorithm,
          {.name = "conv-algorithm",
           .help = "3x3 convolutions on CPUs: direct, winograd (rounds more in fp32), or auto (the "
                   "faster for each pass, timed once and kept with the run); on GPUs: auto "
                   "(cuDNN's fastest, timed likewise) or direct (cuDNN's first choice)",
           .unit = "",
           .choices = {"auto", "direct", "winograd"}})
      .add(&Config::recompute,
           {.name = "recompute",
            .help = "activation checkpointing, with the same bits: norms recomputes the outputs of "
                    "batch norms and additions in backward; auto: norms on CPUs, none on GPUs",
            .unit = "",
            .choices = {"auto", "none", "norms"}})
      .add(&Config::deterministic,
           {.name = "deterministic",
            .help = "use GPU algorithms that give the same bits in every run; --no-deterministic "
                    "times others too and uses the fastest",
            .unit = ""})
      .add(&Config::cuda_graph, {.name = "cuda-graph",
                                 .help = "record a GPU's step once and replay it; --no-cuda-graph "
                                         "launches its kernels one by one, with the same results",
                                 .unit = ""})
      .add(&Config::threads,
           {.name = "threads",
            .help = "compute threads per rank; 0: this rank's share of the affinity mask",
            .unit = "",
            .min = 0,
            .max = 4096})
      .add(&Config::loader_threads,
           {.name = "loader-threads",
            .help = "threads per rank that read and augment ahead; 0: the training thread does it; "
                    "-1: 1 on CPUs, and with a GPU the rank's cores less one, at most 16",
            .unit = "",
            .min = -1,
            .max = 1024});
  return t;
}

}  // namespace

const OptionTable<Config>& train_options() {
  static const OptionTable<Config> table = make_table();
  return table;
}

}  // namespace lockstep
