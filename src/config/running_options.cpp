#include "option_groups.hpp"

namespace lockstep {

// NOLINTNEXTLINE(readability-function-size): a table
void add_running_options(OptionTable<Config>& t) {
  t.group("Communication")
      .add(&Config::comm,
           {.name = "comm",
            .help = "how ranks reduce gradients: nccl on GPUs; shared: through memory shared by "
                    "CPU ranks on one host; mpi: CPU ranks, or GPUs through host memory, where "
                    "ranks may share a GPU; auto: nccl on GPUs, shared on one host, else mpi",
            .unit = "",
            .choices = {"auto", "mpi", "shared", "nccl"}})
      .add(&Config::all_reduce,
           {.name = "allreduce",
            .help = "how CPU ranks of several hosts sum gradients: halving: recursive halving and "
                    "doubling; ring; mpi: as MPI's library does; auto: ring between up to 8 "
                    "hosts, else halving",
            .unit = "",
            .choices = {"auto", "halving", "ring", "mpi"}})
      .add(&Config::comm_progress,
           {.name = "comm-progress",
            .help = "what progresses messages between hosts while a rank computes: a thread, or "
                    "calls of the computing thread between primitives; auto: thread, if MPI has "
                    "MPI_THREAD_SERIALIZED",
            .unit = "",
            .choices = {"auto", "thread", "calls"}})
      .add(&Config::batch_norm, {.name = "batch-norm",
                                 .help = "batch statistics of each rank's samples, averaged for "
                                         "evaluation (local), or of all ranks' samples (sync)",
                                 .unit = "",
                                 .choices = {"local", "sync"}})
      .add(
          &Config::sync_every,
          {.name = "sync-every",
           .help = "local SGD: each rank updates its own replica with its own gradients, and ranks "
                   "average the replicas after steps that are multiples of this, and at epoch "
                   "ends; 0: reduce gradients in each step",
           .unit = "steps",
           .min = 0,
           .max = 1e6})
      .add(&Config::sync_start,
           {.name = "sync-start",
            .help = "reduce gradients in each step before --sync-every begins (post-local SGD)",
            .unit = "epochs",
            .min = 0})
      .add(&Config::sync_momentum,
           {.name = "sync-momentum",
            .help = "with --sync-every: average the optimizer's state with the parameters, or keep "
                    "each rank's (local), as PyTorch's PostLocalSGDOptimizer; a resumed run then "
                    "starts from rank 0's",
            .unit = "",
            .choices = {"average", "local"}})
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
                                         "ends: 500 (steps), 90s, 10min or 2h; 0: only those; "
                                         "auto: computed from the time that a save takes and "
                                         "--node-mttf, and of short epochs not every end is saved",
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
      .add(&Config::nccl_start_seconds,
           {.name = "nccl-start-seconds",
            .help = "limit of the start of NCCL: for all ranks to arrive, and again for NCCL to "
                    "connect them; 0: 5 minutes and 0.1 s a rank, at most 20 minutes",
            .unit = "seconds",
            .min = 0,
            .max = 1e6})
      .add(&Config::time_limit,
           {.name = "time-limit",
            .help = "save and stop with status 75 before this time ends: 90s, 10min or 2h; a Slurm "
                    "job's own limit applies too; 0: only that",
            .unit = ""})
      .add(&Config::node_mttf,
           {.name = "node-mttf",
            .help = "mean time between failures of one node, for --save-every auto; a job on N "
                    "nodes fails N times as often",
            .unit = "hours",
            .min = 0,
            .max = 1e9,
            .above_min = true})
      .add(&Config::check_replicas_every,
           {.name = "check-replicas-every",
            .help = "interval of comparing all ranks' parameters; 0: never",
            .unit = "steps",
            .min = 0})
      .add(&Config::straggler_factor, {.name = "straggler-factor",
                                       .help = "name the ranks whose steps take this many times "
                                               "the median rank's, at epoch ends that are saved; "
                                               "0: never",
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
      .add(&Config::decode,
           {.name = "decode",
            .help = "what decodes the JPEG files of encoded shards: cpu: the loader; gpu: nvJPEG, "
                    "to slightly other pixels; auto: cpu (gpu pays where there are few CPU cores "
                    "per GPU)",
            .unit = "",
            .choices = {"auto", "cpu", "gpu"}})
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
                    "-1: 1 on CPUs, and with a GPU one less than the rank's share of the cores, at "
                    "most 16",
            .unit = "",
            .min = -1,
            .max = 1024});
}

}  // namespace lockstep
