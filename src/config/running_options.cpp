#include "lockstep/config/options.hpp"
#include "option_groups.hpp"

namespace lockstep {
namespace {

/// How a run goes: communication, run, faults, machine.
// NOLINTNEXTLINE(readability-function-size): a table
void add_running_options(OptionTable<Config>& t) {
  t.group("Communication")
      .add(&Config::comm, "comm",
           "how ranks reduce gradients: nccl on GPUs; shared: through memory shared by CPU ranks "
           "on one host; mpi: CPU ranks, or GPUs through host memory, where ranks may share a GPU; "
           "auto: nccl on GPUs, shared on one host, else mpi",
           {.choices = {"auto", "mpi", "shared", "nccl"}})
      .add(&Config::all_reduce, "allreduce",
           "how CPU ranks of several hosts sum gradients: halving: recursive halving and doubling; "
           "ring; mpi: as MPI's library does; auto: ring between up to 8 hosts, else halving",
           {.choices = {"auto", "halving", "ring", "mpi"}})
      .add(
          &Config::comm_progress, "comm-progress",
          "what progresses messages between hosts while a rank computes: a thread, or calls of the "
          "computing thread between primitives; auto: thread, if MPI has MPI_THREAD_SERIALIZED",
          {.choices = {"auto", "thread", "calls"}})
      .add(&Config::batch_norm, "batch-norm",
           "batch statistics of each rank's samples, averaged for evaluation (local), or of all "
           "ranks' samples (sync)",
           {.choices = {"local", "sync"}})
      .add(&Config::sync_every, "sync-every",
           "local SGD: each rank updates its own replica with its own gradients, and ranks average "
           "the replicas after steps that are multiples of this, and at epoch ends; 0: reduce "
           "gradients in each step",
           {.unit = "steps", .min = 0, .max = 1e6})
      .add(&Config::sync_start, "sync-start",
           "reduce gradients in each step before --sync-every begins (post-local SGD)",
           {.unit = "epochs", .min = 0})
      .add(&Config::sync_momentum, "sync-momentum",
           "with --sync-every: average the optimizer's state with the parameters, or keep each "
           "rank's (local), as PyTorch's PostLocalSGDOptimizer; a resumed run then starts from "
           "rank 0's",
           {.choices = {"average", "local"}})
      .add(&Config::bucket_mb, "bucket-mb",
           "size of a bucket: gradients that one all-reduce sums during backward",
           {.unit = "MiB", .min = 0, .max = 1e6, .above_min = true})
      .add(&Config::grad_compression, "grad-compression",
           "reduce gradients in 16 bits; each addition rounds",
           {.choices = {"none", "fp16", "bf16"}})
      .add(&Config::reduce_dtype, "reduce-dtype",
           "data type of the gradient reduction, like FSDP's reduce_dtype; auto: that of "
           "--grad-compression, else fp32",
           {.choices = {"auto", "fp32", "bf16", "fp16"}})
      .add(&Config::shard, "shard",
           "shard optimizer state (optimizer: ZeRO-1), gradients too (grad: ZeRO-2), parameters "
           "too (full: ZeRO-3, FSDP); hybrid: as full, within shard groups",
           {.choices = {"none", "optimizer", "grad", "full", "hybrid"}})
      .add(&Config::param_dtype, "param-dtype",
           "with --shard: data type of all-gathered weights, like FSDP's param_dtype; biases and "
           "norms stay fp32; auto: that of --precision if it has 16 bits, else fp32",
           {.choices = {"auto", "fp32", "bf16", "fp16"}})
      .add(&Config::shard_group, "shard-group",
           "size of the shard group with --shard hybrid; 0: the ranks of a node",
           {.unit = "ranks", .min = 0, .max = 1e6})
      .add(&Config::shard_unit, "shard-unit",
           "what is gathered and reduced as one unit: block, stage, or layers with at least N "
           "parameters together (size:N); auto: block, or with --shard optimizer as many blocks as "
           "fit in --bucket-mb")
      .add(&Config::accumulate_full_gradients, "accumulate-full-gradients",
           "with --shard grad or full and --accumulate: keep unsharded gradients and reduce them "
           "once per step, not in every micro-step");
  t.group("Run")
      .add(&Config::seed, "seed", "seed of initial weights, sample order and augmentation",
           {.min = 0})
      .add(&Config::run_dir, "run-dir", "directory of the run; empty: runs/MODEL")
      .add(&Config::resume, "resume",
           "auto: from the newest valid checkpoint, if there is one; none: start anew, an error if "
           "there is one; or a checkpoint file")
      .add(&Config::init_from, "init-from",
           "file whose weights a new run starts from: a checkpoint, a .pt or .pth of PyTorch, or "
           ".safetensors, with the names of torchvision, timm or Hugging Face")
      .add(&Config::init_head, "init-head",
           "keep the last layer of --init-from, or initialize a new one; auto: a new one if the "
           "file's has another number of outputs",
           {.choices = {"auto", "keep", "new"}})
      .add(&Config::init_partial, "init-partial",
           "take from --init-from what fits, and initialize the rest; without it, a file that "
           "lacks a tensor of the network, or has others, is refused")
      .add(&Config::save_every, "save-every",
           "interval of checkpoints, in addition to those at epoch ends: 500 (steps), 90s, 10min "
           "or 2h; 0: only those; auto: computed from the time that a save takes and --node-mttf, "
           "and of short epochs not every end is saved")
      .add(&Config::keep, "keep", "newest checkpoints to keep, in addition to the best",
           {.min = 1, .max = 1e6})
      .add(&Config::eval_every, "eval-every", "interval of evaluation on split val; 0: never",
           {.unit = "epochs", .min = 0})
      .add(&Config::log_every, "log-every", "interval of lines of metrics",
           {.unit = "steps", .min = 1})
      .add(&Config::log_ranks, "log-ranks", "let every rank print, not only rank 0")
      .add(&Config::progress, "progress",
           "auto: a live bar if standard error is a terminal with no launcher in between, else "
           "lines; bar, plain: always that",
           {.choices = {"auto", "bar", "plain"}})
      .add(&Config::profile_steps, "profile-steps",
           "steps to trace, such as 10:12; the trace of all ranks is written to the run directory "
           "and opens in Perfetto; empty: no trace");
  // --init-from only applies to a fresh run: it is compatible with --resume auto and none, but not
  // with a checkpoint file.
  t.exclusive({.one = "resume", .other = "init-from", .both = [](const Config& config) {
                 return config.resume != "auto" && config.resume != "none" &&
                        !config.init_from.empty();
               }});
  t.group("Faults")
      .add(&Config::watchdog_seconds, "watchdog-seconds",
           "after this time without progress, name the late rank, its host and its phase, and end "
           "the job with status 70; 0: never",
           {.unit = "seconds", .min = 0, .max = 1e6})
      .add(&Config::watchdog_interface, "watchdog-interface",
           "network of the watchdog's connections: a comma-separated list of interface names or "
           "networks such as 10.1.0.0/16, of which a host uses the first it has; empty: any")
      .add(&Config::nccl_start_seconds, "nccl-start-seconds",
           "limit of the start of NCCL: for all ranks to arrive, and again for NCCL to connect "
           "them; 0: 5 minutes and 0.1 s a rank, at most 20 minutes",
           {.unit = "seconds", .min = 0, .max = 1e6})
      .add(&Config::time_limit, "time-limit",
           "save and stop with status 75 before this time ends: 90s, 10min or 2h; a Slurm job's "
           "own limit applies too; 0: only that")
      .add(&Config::node_mttf, "node-mttf",
           "mean time between failures of one node, for --save-every auto; a job on N nodes fails "
           "N times as often",
           {.unit = "hours", .min = 0, .max = 1e9, .above_min = true})
      .add(&Config::check_replicas_every, "check-replicas-every",
           "interval of comparing all ranks' parameters; 0: never", {.unit = "steps", .min = 0})
      .add(&Config::straggler_factor, "straggler-factor",
           "name the ranks whose steps take this many times the median rank's, at epoch ends that "
           "are saved; 0: never",
           {.min = 0, .max = 1e6})
      .add(&Config::debug_collectives, "debug-collectives",
           "check before each collective that all ranks agree on its kind, size and number")
      .add(&Config::wait_for_debugger, "wait-for-debugger",
           "rank that prints its host and process id and waits for a debugger; -1: none",
           {.min = -1, .max = 1 << 24});
  t.group("Machine")
      .add(&Config::device, "device", "what to compute on; auto: GPUs if all ranks have one",
           {.choices = {"auto", "cpu", "cuda"}})
      .add(&Config::decode, "decode",
           "what decodes the JPEG files of encoded shards: cpu: the loader; gpu: nvJPEG, to "
           "slightly other pixels; auto: cpu (gpu pays where there are few CPU cores per GPU)",
           {.choices = {"auto", "cpu", "gpu"}})
      .add(&Config::conv_algorithm, "conv-algorithm",
           "3x3 convolutions on CPUs: direct, winograd (rounds more in fp32), or auto (the faster "
           "for each pass, timed once and kept with the run); on GPUs: auto (cuDNN's fastest, "
           "timed likewise) or direct (cuDNN's first choice)",
           {.choices = {"auto", "direct", "winograd"}})
      .add(&Config::recompute, "recompute",
           "activation checkpointing, with the same bits: norms recomputes the outputs of batch "
           "norms, additions and GELUs in backward; block all of a block but its output, for a "
           "second forward; auto: norms on CPUs, none on GPUs",
           {.choices = {"auto", "none", "norms", "block"}})
      .add(&Config::deterministic, "deterministic",
           "use GPU algorithms that give the same bits in every run; --no-deterministic times "
           "others too and uses the fastest")
      .add(&Config::cuda_graph, "cuda-graph",
           "record a GPU's step once and replay it; --no-cuda-graph launches its kernels one by "
           "one, with the same results")
      .add(&Config::threads, "threads",
           "compute threads per rank; 0: this rank's share of the affinity mask",
           {.min = 0, .max = 4096})
      .add(&Config::loader_threads, "loader-threads",
           "threads per rank that read and augment ahead; 0: the training thread does it; -1: 1 on "
           "CPUs, and with a GPU one less than the rank's share of the cores, at most 16",
           {.min = -1, .max = 1024});
}

}  // namespace

const OptionTable<Config>& train_options() {
  static const OptionTable<Config> table = [] {
    OptionTable<Config> all;
    add_learning_options(all);
    add_running_options(all);
    return all;
  }();
  return table;
}

}  // namespace lockstep
