#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/core/loss_options.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/core/resnet_kinds.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// All options of `lockstep train`, one member each with the same name in underscores. The option
/// table (config/options.hpp) holds help, unit and valid range. A member left unset (empty, or 0 if
/// 0 is not a valid value) gets its value when the run is resolved.
struct Config {
  // model
  std::string model = "resnet50";
  std::int64_t width = 0;  ///< 0: the model's own
  bool zero_init_residual = false;
  Stem stem = Stem::standard;
  Shortcut shortcut = Shortcut::convolution;
  double stochastic_depth = 0;  ///< probability, of the last block
  // data
  std::string data;
  std::string val_data;                              ///< empty: same as data
  std::int64_t image_size = 0;                       ///< 0: the data set's (224 for encoded shards)
  std::vector<ImageSizeChange> image_size_schedule;  ///< of training images, after image_size
  std::int64_t eval_size = 0;    ///< of images in evaluations; 0: the last size of training
  double eval_crop_ratio = 0;    ///< 0: default_eval_crop_ratio for encoded shards
  std::int64_t eval_resize = 0;  ///< short side in evaluations, pixels; 0: from eval_crop_ratio
  ResizeFilter eval_interpolation = ResizeFilter::bilinear;
  ResizeFilter train_interpolation = ResizeFilter::bilinear;
  std::int64_t channels = 0;  ///< 0: the data set's; for --synthetic
  std::int64_t classes = 0;   ///< 0: the data set's
  std::vector<double> mean;   ///< empty: the data set's
  std::vector<double> std;    ///< empty: the data set's
  Augment augment = Augment::none;
  std::int64_t crop_padding = 4;  ///< pixels
  AutoAugment auto_augment = AutoAugment::none;
  std::int64_t randaugment_ops = 2;
  std::int64_t randaugment_magnitude = 9;  ///< number of a bin
  std::int64_t randaugment_bins = 31;
  Interpolation auto_augment_interpolation = Interpolation::nearest;
  double random_erasing = 0;               ///< probability
  double mixup = 0;                        ///< alpha; 0: none
  double cutmix = 0;                       ///< alpha; 0: none
  std::int64_t shuffle_block = 1;          ///< samples
  std::int64_t repeated_augmentation = 1;  ///< copies of a sample in an epoch
  std::string stage_dir;                   ///< node-local; empty: shards are not copied
  bool synthetic = false;
  std::int64_t synthetic_samples = 1024;
  // training
  std::int64_t epochs = 90;
  std::int64_t max_steps = 0;          ///< 0: no limit
  std::int64_t batch_size = 0;         ///< per rank and micro-step; 0: 32, unless global_batch_size
  std::int64_t global_batch_size = 0;  ///< 0: batch_size * ranks * accumulate
  std::int64_t accumulate = 1;
  bool allow_batch_change = false;
  // optimizer
  OptimizerKind optimizer = OptimizerKind::sgd;
  double lr = 0.1;
  std::int64_t lr_base_batch = 0;  ///< 0: no linear scaling
  LrSchedule lr_schedule = LrSchedule::cosine;
  std::vector<double> milestones;  ///< epochs
  double lr_gamma = 0.1;           ///< factor at each milestone
  double lr_min = 0;               ///< at the end of the cosine schedule
  double lr_power = 2.0;           ///< exponent of the polynomial schedule
  double warmup_epochs = 0;
  double warmup_lr = 0;  ///< at the start of the warm-up
  LrUpdate lr_update = LrUpdate::step;
  double momentum = 0.9;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-4;
  bool decay_norm_and_bias = false;
  std::vector<std::string> freeze;  ///< patterns of parameters that are not trained
  FrozenNorms frozen_norms = FrozenNorms::batch;
  std::vector<LrScale> lr_scale;
  double layer_decay = 1;            ///< 1: off
  double trust_coefficient = 0.001;  ///< LARS
  double clip_grad_norm = 0;         ///< 0: off
  double ema_decay = 0;              ///< of the average of the weights; 0: none
  std::int64_t ema_every = 1;        ///< updates
  std::string loss{loss_options.front().name};
  double bce_target_threshold = 0;  ///< 0: none
  double label_smoothing = 0;
  Precision precision = Precision::fp32;
  // communication
  CommChoice comm = CommChoice::automatic;
  AllReduce all_reduce = AllReduce::automatic;
  CommProgress comm_progress = CommProgress::automatic;
  BatchNormScope batch_norm = BatchNormScope::local;
  std::int64_t sync_every = 0;  ///< steps between averages of local SGD; 0: no local SGD
  double sync_start = 0;        ///< epochs before local SGD
  SyncMomentum sync_momentum = SyncMomentum::average;
  double bucket_mb = 25;  ///< MiB
  GradCompression grad_compression = GradCompression::none;
  CommunicationDtype reduce_dtype =
      CommunicationDtype::automatic;  ///< automatic: from grad_compression
  ShardMode shard = ShardMode::none;
  CommunicationDtype param_dtype =
      CommunicationDtype::automatic;  ///< automatic: 16 bits if precision is
  ShardUnit shard_unit = {};
  std::int64_t shard_group = 0;            ///< ranks, for --shard hybrid; 0: the ranks of a node
  bool accumulate_full_gradients = false;  ///< keep gradients unsharded between micro-steps
  // run
  std::int64_t seed = 0;
  std::string run_dir;          ///< empty: runs/MODEL
  std::string resume = "auto";  ///< auto, none or a file
  std::string init_from;
  InitHead init_head = InitHead::automatic;
  bool init_partial = false;
  SaveInterval save_every = {.automatic = true};
  std::int64_t keep = 3;
  double eval_every = 1;        ///< epochs; 0: never
  std::int64_t log_every = 50;  ///< steps
  bool log_ranks = false;
  Progress progress = Progress::automatic;
  StepRange profile_steps;  ///< to trace
  // faults
  double watchdog_seconds = 600;   ///< 0: off
  std::string watchdog_interface;  ///< names or networks; empty: any
  double nccl_start_seconds = 0;   ///< limit of NCCL's start; 0: from the number of ranks
  TimeSpan time_limit;
  double node_mttf = 1011;                   ///< hours; 7.9 h for a job on 128 nodes
  std::int64_t check_replicas_every = 1000;  ///< steps; 0: never
  double straggler_factor = 1.5;             ///< 0: no rank is reported
  bool debug_collectives = false;
  std::int64_t wait_for_debugger = -1;  ///< rank; -1: none
  // machine
  DeviceChoice device = DeviceChoice::automatic;
  DecodeChoice decode = DecodeChoice::automatic;
  ConvAlgorithm conv_algorithm = ConvAlgorithm::automatic;  ///< of the CPU engine
  Recompute recompute = Recompute::automatic;
  bool deterministic = true;         ///< use deterministic GPU algorithms
  bool cuda_graph = true;            ///< record GPU work as CUDA graphs and replay it
  std::int64_t threads = 0;          ///< 0: from the affinity mask
  std::int64_t loader_threads = -1;  ///< -1: automatic; 0: read in the training thread
  friend bool operator==(const Config&, const Config&) = default;
};

/// Bytes of a bucket of gradients (--bucket-mb), before its end moves to that of a parameter.
[[nodiscard]] inline std::size_t bucket_bytes(const Config& config) noexcept {
  return static_cast<std::size_t>(config.bucket_mb * 0x1p20);
}

/// Height and width in pixels of images in evaluations; 0: the data set's (224 for encoded shards).
[[nodiscard]] inline std::int64_t evaluation_size(const Config& config) noexcept {
  if (config.eval_size != 0) return config.eval_size;
  const auto& schedule = config.image_size_schedule;
  return schedule.empty() ? config.image_size : schedule.back().size;
}

}  // namespace lockstep
