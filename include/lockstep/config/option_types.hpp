#pragma once

#include "lockstep/core/recompute.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// All options of `lockstep train`; complete in config.hpp.
struct Config;

/// --eval-crop-ratio: 224 of 256 pixels, as torchvision's reference scripts.
inline constexpr double default_eval_crop_ratio = 0.875;
enum class Augment { none, crop_flip, resized_crop };
/// Random operations on the pixels of training images, after Augment.
enum class AutoAugment { none, trivialaugment, randaugment };
/// Interpolation of pixel values.
enum class Interpolation { nearest, bilinear };
/// Filter of images that are resized; `random`: one of the others for each training image.
enum class ResizeFilter { bilinear, bicubic, random };
enum class OptimizerKind { sgd, adam, adamw, lars, lamb, lion };
/// Name, properties and defaults of an optimizer; its formula is in `optim`. Defaults are those of
/// PyTorch or timm.
struct OptimizerTraits {
  OptimizerKind kind;
  const char* name;
  bool has_betas = false;        ///< --beta1 and --beta2
  bool has_moments = false;      ///< keeps two moments of each value, and divides by --eps
  bool has_trust_ratio = false;  ///< an update depends on norms of whole tensors
  bool decouples_decay = false;  ///< --weight-decay shrinks the weights, else it is an L2 penalty
  double lr = 0.1;
  double weight_decay = 1e-4;
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip_grad_norm = 0;
};
/// By kind.
inline constexpr std::array optimizer_traits{
    OptimizerTraits{.kind = OptimizerKind::sgd, .name = "sgd"},
    OptimizerTraits{.kind = OptimizerKind::adam,
                    .name = "adam",
                    .has_betas = true,
                    .has_moments = true,
                    .lr = 1e-3,
                    .weight_decay = 0},
    OptimizerTraits{.kind = OptimizerKind::adamw,
                    .name = "adamw",
                    .has_betas = true,
                    .has_moments = true,
                    .decouples_decay = true,
                    .lr = 1e-3,
                    .weight_decay = 0.01},
    OptimizerTraits{.kind = OptimizerKind::lars, .name = "lars", .has_trust_ratio = true},
    OptimizerTraits{.kind = OptimizerKind::lamb,
                    .name = "lamb",
                    .has_betas = true,
                    .has_moments = true,
                    .has_trust_ratio = true,
                    .decouples_decay = true,
                    .lr = 1e-3,
                    .weight_decay = 0.01,
                    .eps = 1e-6,
                    .clip_grad_norm = 1},
    OptimizerTraits{.kind = OptimizerKind::lion,
                    .name = "lion",
                    .has_betas = true,
                    .decouples_decay = true,
                    .lr = 1e-4,
                    .weight_decay = 0,
                    .beta2 = 0.99},
};
static_assert(std::ranges::is_sorted(optimizer_traits, {}, &OptimizerTraits::kind) &&
              optimizer_traits.front().kind == OptimizerKind{0} &&
              optimizer_traits.back().kind == OptimizerKind{optimizer_traits.size() - 1});
[[nodiscard]] constexpr const OptimizerTraits& traits_of(OptimizerKind kind) noexcept {
  return optimizer_traits[static_cast<std::size_t>(kind)];
}
enum class LrSchedule { constant, step, cosine, polynomial };
/// When the learning rate changes: each step, or at the start of each epoch.
enum class LrUpdate { step, epoch };
enum class Progress { automatic, bar, plain };
enum class InitHead { automatic, keep, fresh };
enum class BatchNormScope { local, sync };
/// Statistics that training uses in batch norms whose parameters are frozen.
enum class FrozenNorms { batch, running };
/// Optimizer state when --sync-every averages the parameters.
enum class SyncMomentum { average, local };
enum class GradCompression { none, fp16, bf16 };
/// Data type of values in communication.
enum class CommunicationDtype { automatic, fp32, bf16, fp16 };
enum class ShardMode { none, optimizer, grad, full, hybrid };
inline constexpr std::array<std::string_view, 5> shard_mode_names{"none", "optimizer", "grad",
                                                                  "full", "hybrid"};
[[nodiscard]] constexpr std::string_view to_string(ShardMode mode) noexcept {
  return shard_mode_names[static_cast<std::size_t>(mode)];
}
enum class DeviceChoice { automatic, cpu, cuda };
/// What decodes JPEG files.
enum class DecodeChoice { automatic, cpu, gpu };
enum class ConvAlgorithm { automatic, direct, winograd };
enum class CommChoice { automatic, mpi, shared, nccl };
/// How CPU ranks of several hosts sum: by messages on one of our schedules, or by MPI's
/// collectives.
enum class AllReduce { automatic, halving, ring, mpi };
/// What progresses messages between hosts while a rank computes.
enum class CommProgress { automatic, thread, calls };

/// `--save-every 500`, `10min` or `auto`; all zero: only at epoch ends.
struct SaveInterval {
  std::int64_t steps = 0;
  double seconds = 0;
  bool automatic = false;  ///< computed from the cost of a save
  friend bool operator==(const SaveInterval&, const SaveInterval&) = default;
};

/// `--shard-unit auto`, `block`, `stage` or `size:1000000`.
struct ShardUnit {
  enum class By { automatic, block, stage, size };
  By by = By::automatic;
  std::int64_t smallest = 0;  ///< fewest parameters of a unit, for `size`
  friend bool operator==(const ShardUnit&, const ShardUnit&) = default;
};

/// `--profile-steps 10:12`, both ends included; zeros: none.
struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  friend bool operator==(const StepRange&, const StepRange&) = default;
};

/// One factor of `--lr-scale fc.*=10,layer4.*=2`.
struct LrScale {
  std::string pattern;
  double factor = 1;
  friend bool operator==(const LrScale&, const LrScale&) = default;
};

/// One change of `--image-size-schedule 192@60,224@80`.
struct ImageSizeChange {
  std::int64_t size = 0;   ///< of training images, in pixels
  std::int64_t epoch = 0;  ///< the first epoch that has it, from 0
  friend bool operator==(const ImageSizeChange&, const ImageSizeChange&) = default;
};

/// `--time-limit 10min`; zero: none.
struct TimeSpan {
  double seconds = 0;
  friend bool operator==(const TimeSpan&, const TimeSpan&) = default;
};

}  // namespace lockstep
