#include "lockstep/config/options.hpp"

#include "lockstep/config/option_table.hpp"

namespace lockstep {
namespace {

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
                                         .help = "each residual block starts as the identity",
                                         .unit = ""});
  t.group("Data")
      .add(&Config::data, {.name = "data",
                           .help = "directory of shards; its split train is trained on",
                           .unit = ""})
      .add(&Config::val_data,
           {.name = "val-data", .help = "directory of the split val; empty: as --data", .unit = ""})
      .add(&Config::image_size,
           {.name = "image-size",
            .help = "height and width the network takes; 0: the data set's, 224 for JPEG",
            .unit = "pixels",
            .min = 0,
            .max = 16384})
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
            .help = "channel means of pixels in [0, 1], with commas; empty: the data set's",
            .unit = ""})
      .add(&Config::std, {.name = "std",
                          .help = "channel standard deviations; empty: the data set's",
                          .unit = "",
                          .min = 0,
                          .above_min = true})
      .add(&Config::augment, {.name = "augment",
                              .help = "training images are left, padded and cropped and flipped, "
                                      "or cropped at random size and flipped",
                              .unit = "",
                              .choices = {"none", "crop-flip", "resized-crop"}})
      .add(&Config::crop_padding, {.name = "crop-padding",
                                   .help = "padding of crop-flip",
                                   .unit = "pixels",
                                   .min = 0,
                                   .max = 4096})
      .add(
          &Config::shuffle_block,
          {.name = "shuffle-block",
           .help =
               "consecutive samples that stay together when shuffled; keep it well below the batch",
           .unit = "samples",
           .min = 1})
      .add(&Config::stage_dir,
           {.name = "stage-dir",
            .help = "directory on the node's own storage; shards are copied there "
                    "during the first epoch and then read from there; what "
                    "does not fit stays where it is",
            .unit = ""})
      .add(&Config::synthetic,
           {.name = "synthetic", .help = "train on generated images, no files needed", .unit = ""})
      .add(&Config::synthetic_samples, {.name = "synthetic-samples",
                                        .help = "size of the generated data set",
                                        .unit = "samples",
                                        .min = 1});
  t.group("Training")
      .add(&Config::epochs,
           {.name = "epochs", .help = "passes over the data", .unit = "", .min = 1, .max = 1e6})
      .add(&Config::max_steps, {.name = "max-steps",
                                .help = "end at this global step, with a checkpoint; 0: no limit",
                                .unit = "steps",
                                .min = 0})
      .add(&Config::batch_size,
           {.name = "batch-size",
            .help = "samples per rank and micro-step; 0: 32, or what --global-batch-size gives",
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
                                         .help = "let a run that goes on take another global batch",
                                         .unit = ""})
      .add(&Config::label_smoothing, {.name = "label-smoothing",
                                      .help = "share of the target spread over all classes",
                                      .unit = "",
                                      .min = 0,
                                      .max = 1})
      .add(&Config::precision,
           {.name = "precision",
            .help = "of activations, their gradients and working weights; parameters, statistics "
                    "and sums stay fp32; CPUs: fp32 or bf16; fp16 with dynamic loss scaling",
            .unit = "",
            .choices = {"fp32", "tf32", "bf16", "fp16"}});
  t.exclusive({.one = "batch-size", .other = "global-batch-size", .both = {}});
  t.group("Optimizer")
      .add(&Config::optimizer,
           {.name = "optimizer", .help = "update rule", .unit = "", .choices = optimizer_names()})
      .add(&Config::lr, {.name = "lr", .help = "learning rate after warm-up", .unit = "", .min = 0})
      .add(
          &Config::lr_base_batch,
          {.name = "lr-base-batch",
           .help =
               "--lr is for this global batch and scales linearly with the real one; 0: no scaling",
           .unit = "samples",
           .min = 0})
      .add(&Config::lr_schedule, {.name = "lr-schedule",
                                  .help = "learning rate over time, per iteration",
                                  .unit = "",
                                  .choices = {"constant", "step", "cosine", "polynomial"}})
      .add(&Config::milestones,
           {.name = "milestones",
            .help = "where the step schedule multiplies by --lr-gamma, with commas",
            .unit = "epochs",
            .min = 0})
      .add(&Config::lr_gamma, {.name = "lr-gamma",
                               .help = "factor at each milestone",
                               .unit = "",
                               .min = 0,
                               .max = 1,
                               .above_min = true})
      .add(&Config::lr_power, {.name = "lr-power",
                               .help = "exponent of the polynomial schedule",
                               .unit = "",
                               .min = 0,
                               .above_min = true})
      .add(&Config::warmup_epochs,
           {.name = "warmup-epochs", .help = "linear warm-up from 0", .unit = "epochs", .min = 0})
      .add(&Config::momentum,
           {.name = "momentum", .help = "of sgd and lars", .unit = "", .min = 0, .max = 1})
      .add(&Config::nesterov,
           {.name = "nesterov", .help = "Nesterov's momentum, sgd only", .unit = ""})
      .add(&Config::beta1, {.name = "beta1",
                            .help = "decay of Adam's first moment",
                            .unit = "",
                            .min = 0,
                            .max = 0.999999999})
      .add(&Config::beta2, {.name = "beta2",
                            .help = "decay of Adam's second moment",
                            .unit = "",
                            .min = 0,
                            .max = 0.999999999})
      .add(&Config::eps, {.name = "eps",
                          .help = "keeps Adam's divisor from zero",
                          .unit = "",
                          .min = 0,
                          .above_min = true})
      .add(&Config::weight_decay,
           {.name = "weight-decay",
            .help = "of weights: an L2 penalty of sgd, adam and lars, else decoupled",
            .unit = "",
            .min = 0})
      .add(
          &Config::decay_norm_and_bias,
          {.name = "decay-norm-and-bias", .help = "decay norm and bias parameters too", .unit = ""})
      .add(
          &Config::trust_coefficient,
          {.name = "trust-coefficient", .help = "of lars", .unit = "", .min = 0, .above_min = true})
      .add(&Config::clip_grad_norm, {.name = "clip-grad-norm",
                                     .help = "largest norm of all gradients; 0: no clipping",
                                     .unit = "",
                                     .min = 0});
  t.group("Communication")
      .add(&Config::comm,
           {.name = "comm",
            .help = "what reduces gradients: a GPU's, nccl, or mpi through the host, by which "
                    "ranks may share a GPU; a processor's, memory that the ranks of a host share, "
                    "or mpi; auto: nccl, or shared on one host",
            .unit = "",
            .choices = {"auto", "mpi", "shared", "nccl"}})
      .add(&Config::batch_norm,
           {.name = "batch-norm",
            .help = "statistics of each rank's samples, averaged for evaluation, or of all ranks'",
            .unit = "",
            .choices = {"local", "sync"}})
      .add(&Config::bucket_mb, {.name = "bucket-mb",
                                .help = "gradients reduced in one call while backward goes on",
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
            .help = "data type of the gradient reduction, as FSDP's reduce_dtype; auto: as "
                    "--grad-compression says, else fp32",
            .unit = "",
            .choices = {"auto", "fp32", "bf16", "fp16"}})
      .add(&Config::shard,
           {.name = "shard",
            .help = "shard optimizer state (optimizer: ZeRO-1), gradients too (grad: ZeRO-2), "
                    "parameters too (full: ZeRO-3, FSDP); hybrid: as full, within shard groups",
            .unit = "",
            .choices = {"none", "optimizer", "grad", "full", "hybrid"}})
      .add(
          &Config::param_dtype,
          {.name = "param-dtype",
           .help = "with --shard: data type of gathered weights, as FSDP's param_dtype; biases and "
                   "norms stay fp32; auto: 16 bits where --precision computes in them",
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
            .help = "what is gathered and reduced as one: block, stage, or layers of at least N "
                    "parameters, as size:N; auto: block, and with --shard optimizer as many of "
                    "them as --bucket-mb holds",
            .unit = ""})
      .add(&Config::accumulate_full_gradients,
           {.name = "accumulate-full-gradients",
            .help = "with --shard grad or full and --accumulate: keeps a rank's whole gradients "
                    "and reduces them once, instead of in each micro-step",
            .unit = ""});
  t.group("Run")
      .add(&Config::seed, {.name = "seed",
                           .help = "of initial weights, sample order and augmentation",
                           .unit = "",
                           .min = 0})
      .add(&Config::run_dir,
           {.name = "run-dir", .help = "the run's directory; empty: runs/MODEL", .unit = ""})
      .add(&Config::resume,
           {.name = "resume",
            .help = "auto goes on from the newest good checkpoint, none refuses one, else a file",
            .unit = ""})
      .add(&Config::init_from, {.name = "init-from",
                                .help = "checkpoint whose weights a fresh run starts with",
                                .unit = ""})
      .add(&Config::init_head, {.name = "init-head",
                                .help = "the last layer of --init-from is kept, or starts new",
                                .unit = "",
                                .choices = {"keep", "new"}})
      .add(&Config::save_every,
           {.name = "save-every",
            .help =
                "checkpoints beside those at epoch ends, as 500 (steps), 90s, 10min or 2h; 0: none",
            .unit = ""})
      .add(&Config::keep, {.name = "keep",
                           .help = "newest checkpoints that stay; the best stays too",
                           .unit = "",
                           .min = 1,
                           .max = 1e6})
      .add(&Config::eval_every, {.name = "eval-every",
                                 .help = "evaluation on split val; 0: never",
                                 .unit = "epochs",
                                 .min = 0})
      .add(&Config::log_every, {.name = "log-every",
                                .help = "steps between lines of metrics",
                                .unit = "steps",
                                .min = 1})
      .add(&Config::log_ranks,
           {.name = "log-ranks", .help = "every rank prints, not rank 0 alone", .unit = ""})
      .add(&Config::progress, {.name = "progress",
                               .help = "a live bar where standard error is a terminal without a "
                                       "launcher between; bar forces it",
                               .unit = "",
                               .choices = {"auto", "bar", "plain"}})
      .add(&Config::profile_steps,
           {.name = "profile-steps",
            .help = "write a trace of these steps of all ranks to the run directory, as 10:12; it "
                    "opens in Perfetto",
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
            .help = "without progress for so long, the late rank, its host and phase are named and "
                    "the job ends with 70; 0: never",
            .unit = "seconds",
            .min = 0,
            .max = 1e6})
      .add(&Config::watchdog_interface,
           {.name = "watchdog-interface",
            .help = "the network that its connections use: interfaces by name, or a network as "
                    "10.1.0.0/16, the first of a list with commas that a host has; none: any",
            .unit = ""})
      .add(&Config::time_limit,
           {.name = "time-limit",
            .help = "save and stop with 75 before so much time is over, as 90s, 10min or 2h; a "
                    "Slurm job's own limit counts too; 0: that alone",
            .unit = ""})
      .add(&Config::check_replicas_every,
           {.name = "check-replicas-every",
            .help = "steps between comparisons of all ranks' parameters; 0: never",
            .unit = "steps",
            .min = 0})
      .add(&Config::straggler_factor,
           {.name = "straggler-factor",
            .help = "an epoch's line names ranks whose steps take this many times the median "
                    "rank's; 0: never",
            .unit = "",
            .min = 0,
            .max = 1e6})
      .add(&Config::debug_collectives,
           {.name = "debug-collectives",
            .help = "compare each collective's kind, size and number over all ranks before it",
            .unit = ""})
      .add(&Config::wait_for_debugger,
           {.name = "wait-for-debugger",
            .help = "this rank prints its host and process id and waits for one; -1: none",
            .unit = "",
            .min = -1,
            .max = 1 << 24});
  t.group("Machine")
      .add(&Config::device, {.name = "device",
                             .help = "what to compute on; auto: GPUs where all ranks have one",
                             .unit = "",
                             .choices = {"auto", "cpu", "cuda"}})
      .add(&Config::conv_algorithm,
           {.name = "conv-algorithm",
            .help = "of 3x3 convolutions on CPUs in fp32: direct; winograd, which rounds more; "
                    "auto: each step by the faster, timed once and kept with the run. On GPUs: "
                    "auto: the fastest of cuDNN's, likewise; direct: its own first choice",
            .unit = "",
            .choices = {"auto", "direct", "winograd"}})
      .add(&Config::recompute,
           {.name = "recompute",
            .help = "what backward computes again, to the same bits, rather than have it kept: "
                    "norms, the outputs of batch norms and of additions; none; auto: norms on CPUs",
            .unit = "",
            .choices = {"auto", "none", "norms"}})
      .add(&Config::deterministic,
           {.name = "deterministic",
            .help = "a GPU's algorithms give the same bits in every run; --no-deterministic times "
                    "others too and takes the fastest",
            .unit = ""})
      .add(&Config::cuda_graph,
           {.name = "cuda-graph",
            .help = "a GPU's work of a step is recorded once and replayed; --no-cuda-graph queues "
                    "it piece by piece, to the same numbers",
            .unit = ""})
      .add(&Config::threads, {.name = "threads",
                              .help = "compute threads per rank; 0: the affinity mask's share",
                              .unit = "",
                              .min = 0,
                              .max = 4096})
      .add(&Config::loader_threads,
           {.name = "loader-threads",
            .help = "threads per rank that read and augment ahead; 0: none, in the training thread",
            .unit = "",
            .min = 0,
            .max = 1024});
  return t;
}

}  // namespace

const OptionTable<Config>& train_options() {
  static const OptionTable<Config> table = make_table();
  return table;
}

}  // namespace lockstep
