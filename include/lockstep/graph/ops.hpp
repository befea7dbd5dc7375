#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {

using ValueId = int;      ///< index of a node's output
using ParameterId = int;  ///< index into Graph::parameters()
using StatisticId = int;  ///< index into Graph::statistics()

struct Conv2dOptions {
  std::string name;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;  ///< divides the channels; each group sees only its own input channels
  bool bias = false;
};
/// Stochastic depth of a residual branch, torchvision's mode "row": in training, the branch is 0
/// for the samples of a batch that drop `block`, and divided by 1 - probability for the others.
/// `Batch::dropped` says which samples drop it. Source: G. Huang et al., "Deep networks with
/// stochastic depth", 2016.
struct StochasticDepth {
  double probability = 0;  ///< 0: none
  int block = 0;           ///< bit of Batch::dropped; below max_dropped_blocks
  /// The factor on the branch of samples that do not drop it.
  [[nodiscard]] float scale() const noexcept { return static_cast<float>(1 / (1 - probability)); }
};
inline constexpr int max_dropped_blocks = 64;

struct BatchNormOptions {
  std::string name;
  double eps = 1e-5;
  double momentum = 0.1;          ///< weight of the new batch in the running statistics
  bool zero_init_weight = false;  ///< --zero-init-residual
  StochasticDepth drop = {};      ///< of the branch that ends in the norm
};
/// Square windows.
struct PoolOptions {
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
};
struct AvgPoolOptions {
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
  /// Whether windows may extend past the image, so that the output's extent is rounded up. Means
  /// are then of a window's pixels within the image: torch's ceil_mode=True and
  /// count_include_pad=False. Else padding counts as zeros, torch's default.
  bool partial_windows = false;
};
struct LinearOptions {
  std::string name;
  std::int64_t out_features = 0;
};
struct SoftmaxCrossEntropyOptions {
  double label_smoothing = 0.0;
};
struct BinaryCrossEntropyOptions {
  double label_smoothing = 0.0;
  double target_threshold = 0.0;  ///< targets above it become 1, others 0; 0: targets stay
};

struct Input {
  static constexpr std::string_view op_name = "input";
};
struct Conv2d {
  static constexpr std::string_view op_name = "conv2d";
  ValueId input;
  Conv2dOptions options;
};
struct BatchNorm {
  static constexpr std::string_view op_name = "batch_norm";
  ValueId input;
  BatchNormOptions options;
};
struct Relu {
  static constexpr std::string_view op_name = "relu";
  ValueId input;
};
struct Add {
  static constexpr std::string_view op_name = "add";
  ValueId left;
  ValueId right;
};
struct MaxPool {
  static constexpr std::string_view op_name = "max_pool";
  ValueId input;
  PoolOptions options;
};
struct GlobalAvgPool {
  static constexpr std::string_view op_name = "global_avg_pool";
  ValueId input;
};
struct Flatten {
  static constexpr std::string_view op_name = "flatten";
  ValueId input;
};
struct Linear {
  static constexpr std::string_view op_name = "linear";
  ValueId input;
  LinearOptions options;
};
struct SoftmaxCrossEntropy {
  static constexpr std::string_view op_name = "softmax_cross_entropy";
  ValueId input;
  SoftmaxCrossEntropyOptions options;
};

struct AvgPool {
  static constexpr std::string_view op_name = "avg_pool";
  ValueId input;
  AvgPoolOptions options;
};

struct BinaryCrossEntropy {
  static constexpr std::string_view op_name = "binary_cross_entropy";
  ValueId input;
  BinaryCrossEntropyOptions options;
};

/// New ops come last: the positions are part of a graph's fingerprint.
using Op = std::variant<Input, Conv2d, BatchNorm, Relu, Add, MaxPool, GlobalAvgPool, Flatten,
                        Linear, SoftmaxCrossEntropy, AvgPool, BinaryCrossEntropy>;

/// Whether the op is a loss, which ends a graph.
template <typename T>
inline constexpr bool is_loss_type =
    std::is_same_v<T, SoftmaxCrossEntropy> || std::is_same_v<T, BinaryCrossEntropy>;
[[nodiscard]] inline bool is_loss(const Op& op) noexcept {
  return std::holds_alternative<SoftmaxCrossEntropy>(op) ||
         std::holds_alternative<BinaryCrossEntropy>(op);
}

}  // namespace lockstep
