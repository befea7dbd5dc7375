#pragma once

#include "lockstep/core/shape.hpp"
#include "lockstep/graph/op_definition.hpp"

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {

/// Other initial values than PyTorch's default.
struct InitialValues {
  Initialization initialization;
  double deviation = 0;  ///< of Initialization::normal
};
struct Conv2dOptions {
  std::string name;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;  ///< divides the channels; each group sees only its own input channels
  bool bias = false;
  std::optional<InitialValues> initial_weight = {};
  std::optional<InitialValues> initial_bias = {};
};
/// Stochastic depth of a residual branch, torchvision's mode "row": in training, the branch is 0
/// for the samples of a batch that drop `block`, and divided by 1 - probability for the others.
/// DroppedBlocks says which samples drop it. Source: G. Huang et al., "Deep networks with
/// stochastic depth", 2016.
struct StochasticDepth {
  double probability = 0;  ///< 0: none
  int block = 0;           ///< bit of DroppedBlocks::masks; below max_dropped_blocks
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
struct LayerNormOptions {
  std::string name;
  double eps = 1e-5;
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
  std::optional<InitialValues> initial_weight = {};
  std::optional<InitialValues> initial_bias = {};
  char separator = '.';  ///< of the names of parameters: fc.weight, or in_proj_weight
};
struct TokensOptions {
  std::string class_token;  ///< names of the parameters, shaped (1, 1, E) and (1, 1 + S, E)
  std::string positions;
};
struct AttentionOptions {
  std::string name;
  std::int64_t heads = 1;
};
struct SoftmaxCrossEntropyOptions {
  double label_smoothing = 0.0;
};
struct BinaryCrossEntropyOptions {
  double label_smoothing = 0.0;
  double target_threshold = 0.0;  ///< targets above it become 1, others 0; 0: targets stay
};
struct MeanSquaredErrorOptions {
  double label_smoothing = 0.0;
};

// Ops. Each is defined by its functions, in src/graph/ops, and by its derivative; the engines lower
// both. `is_cheap`: backward may compute the op again instead of keeping its output.

struct Input {
  static constexpr std::string_view op_name = "input";
  Shape shape;
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
};
struct Conv2d {
  static constexpr std::string_view op_name = "conv2d";
  ValueId input;
  Conv2dOptions options;
  static constexpr std::array gradient{
      GradientOp{.of_inputs = false, .of_parameters = true, .reads_inputs = true},
      GradientOp{.reads_parameters = true}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
struct BatchNorm {
  static constexpr std::string_view op_name = "batch_norm";
  ValueId input;
  BatchNormOptions options;
  static constexpr std::array gradient{
      GradientOp{.of_parameters = true, .reads_inputs = true, .reads_parameters = true}};
  static constexpr bool is_cheap = true;
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
struct Relu {
  static constexpr std::string_view op_name = "relu";
  ValueId input;
  static constexpr std::array gradient{GradientOp{.reads_output = true}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
struct Add {
  static constexpr std::string_view op_name = "add";
  ValueId left;
  ValueId right;
  static constexpr std::array<GradientOp, 0> gradient{};
  static constexpr bool is_cheap = true;
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
struct MaxPool {
  static constexpr std::string_view op_name = "max_pool";
  ValueId input;
  PoolOptions options;
  static constexpr std::array gradient{GradientOp{.reads_saved = true}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
struct GlobalAvgPool {
  static constexpr std::string_view op_name = "global_avg_pool";
  ValueId input;
  static constexpr std::array gradient{GradientOp{}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
struct Flatten {
  static constexpr std::string_view op_name = "flatten";
  ValueId input;
  static constexpr std::array gradient{GradientOp{}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
/// Of a flat value, or of the channels of each pixel of C,H,W.
struct Linear {
  static constexpr std::string_view op_name = "linear";
  ValueId input;
  LinearOptions options;
  static constexpr std::array gradient{
      GradientOp{.of_inputs = false, .of_parameters = true, .reads_inputs = true},
      GradientOp{.reads_parameters = true}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
struct AvgPool {
  static constexpr std::string_view op_name = "avg_pool";
  ValueId input;
  AvgPoolOptions options;
  static constexpr std::array gradient{GradientOp{}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};

/// x times the probability that a standard normal value is below x, as torch.nn.GELU(). Source:
/// D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016.
struct Gelu {
  static constexpr std::string_view op_name = "gelu";
  ValueId input;
  static constexpr std::array gradient{GradientOp{.reads_inputs = true}};
  static constexpr bool is_cheap = true;
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
/// Normalizes the channels of each pixel, or the features of a flat value, by their own mean and
/// biased variance, then multiplies by the weight and adds the bias: torch.nn.LayerNorm of a flat
/// value, torchvision's LayerNorm2d of C,H,W. Source: J. L. Ba et al., "Layer normalization", 2016.
struct LayerNorm {
  static constexpr std::string_view op_name = "layer_norm";
  ValueId input;
  LayerNormOptions options;
  static constexpr std::array gradient{GradientOp{
      .of_parameters = true, .reads_inputs = true, .reads_saved = true, .reads_parameters = true}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
/// The pixels of E,H,W in rows, after a class token, plus an embedding of each position: the input
/// of a vision transformer, E,1+HW,1. Source: A. Dosovitskiy et al., "An image is worth 16x16
/// words: Transformers for image recognition at scale", 2020.
struct Tokens {
  static constexpr std::string_view op_name = "tokens";
  ValueId input;
  TokensOptions options;
  static constexpr std::array gradient{GradientOp{.of_parameters = true}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
/// The channels of the first pixel.
struct FirstToken {
  static constexpr std::string_view op_name = "first_token";
  ValueId input;
  static constexpr std::array gradient{GradientOp{}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};
/// softmax(q k^T / sqrt(d)) v of each head over the pixels of 3E,S,1, whose channels are those of
/// all heads' q, then k, then v, with d = E / heads: what torch.nn.MultiheadAttention computes
/// between its two projections. Source: A. Vaswani et al., "Attention is all you need", 2017.
struct Attention {
  static constexpr std::string_view op_name = "attention";
  ValueId input;
  AttentionOptions options;
  static constexpr std::array gradient{GradientOp{.reads_inputs = true, .reads_saved = true}};
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
  [[nodiscard]] OnnxNodes onnx(const Shape& output) const;
};

/// Ends a graph with the sum of the samples' losses. With smoothing e, K classes and log p the
/// log-softmax of the logits, the loss of a sample with label y is
/// -(1 - e) * log p[y] - e / K * sum over k of log p[k], as torch's label_smoothing.
struct SoftmaxCrossEntropy {
  static constexpr std::string_view op_name = "softmax_cross_entropy";
  static constexpr std::string_view loss_name = "cross-entropy";
  ValueId input;
  SoftmaxCrossEntropyOptions options;
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
};
/// Ends a graph with the sum of the samples' losses, each the mean over the classes of
/// -t * log p - (1 - t) * log(1 - p), with p the sigmoid of the logit and t the smoothed target,
/// as timm's BinaryCrossEntropy. Evaluation computes softmax cross entropy without smoothing.
struct BinaryCrossEntropy {
  static constexpr std::string_view op_name = "binary_cross_entropy";
  static constexpr std::string_view loss_name = "bce";
  ValueId input;
  BinaryCrossEntropyOptions options;
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
};
/// Ends a graph with the sum of the samples' losses, each the mean over the classes of
/// (z - t)^2, with z the logit and t the smoothed target, as torch's mse_loss of logits and one-hot
/// targets. Evaluation computes softmax cross entropy without smoothing.
struct MeanSquaredError {
  static constexpr std::string_view op_name = "mean_squared_error";
  static constexpr std::string_view loss_name = "mse";
  ValueId input;
  MeanSquaredErrorOptions options;
  [[nodiscard]] OpDefinition define(const OpInputs& in) const;
};

/// New ops come last: the positions are part of a graph's fingerprint.
using Op = std::variant<Input, Conv2d, BatchNorm, Relu, Add, MaxPool, GlobalAvgPool, Flatten,
                        Linear, SoftmaxCrossEntropy, AvgPool, BinaryCrossEntropy, Gelu, LayerNorm,
                        MeanSquaredError, Tokens, FirstToken, Attention>;

/// Whether the op is a loss, which ends a graph. `loss_name`: of its LossOption.
template <typename T>
concept LossOp = std::same_as<std::remove_cvref_t<decltype(T::loss_name)>, std::string_view>;
[[nodiscard]] inline bool is_loss(const Op& op) noexcept {
  return std::visit([](const auto& each) { return LossOp<std::decay_t<decltype(each)>>; }, op);
}

/// The options that a loss may have.
struct LossSettings {
  double label_smoothing = 0;
  double target_threshold = 0;  ///< 0: none
  friend bool operator==(const LossSettings&, const LossSettings&) = default;
};
template <LossOp T>
[[nodiscard]] LossSettings settings_of(const T& op) noexcept {
  LossSettings settings{.label_smoothing = op.options.label_smoothing};
  if constexpr (requires { op.options.target_threshold; }) {
    settings.target_threshold = op.options.target_threshold;
  }
  return settings;
}
/// Makes the loss `name`. Settings that the loss does not have are ignored. Error(usage) if
/// there is none of this name.
[[nodiscard]] Op make_loss(std::string_view name, ValueId logits, const LossSettings& settings);
/// Of a loss; those of no loss otherwise.
[[nodiscard]] LossSettings loss_settings(const Op& op) noexcept;
/// The name of the loss's LossOption; empty if the op is none.
[[nodiscard]] std::string_view loss_name(const Op& op) noexcept;

/// What every op but the input and the losses has; one that lacks a part does not compile.
template <typename T>
concept LayerOp = requires(const T& op) {
  { op.onnx(Shape()) } -> std::same_as<OnnxNodes>;
  {std::span<const GradientOp>(T::gradient)};
};
template <typename... Ops>
constexpr bool all_are_defined(const std::variant<Ops...>*) {
  return ((std::is_same_v<Ops, Input> || LossOp<Ops> || LayerOp<Ops>)&&...);
}
static_assert(all_are_defined(static_cast<const Op*>(nullptr)));

/// Calls `visit(id)` for each value that the op reads, in order; it may change the id.
template <typename AnyOp, typename Visit>
void for_each_input(AnyOp& op, const Visit& visit) {
  std::visit(
      [&](auto& each) {
        if constexpr (requires { each.input; }) visit(each.input);
        if constexpr (requires { each.left; }) {
          visit(each.left);
          visit(each.right);
        }
      },
      op);
}
/// "conv2d", "batch_norm" and so on.
[[nodiscard]] std::string_view op_name(const Op& op);
/// The layer's name, or the op's if it has none.
[[nodiscard]] std::string layer_name(const Op& op);
/// The layer's name, or that of an op without one with its id, which is unique: "relu_3".
[[nodiscard]] std::string unique_name(const Op& op, ValueId id);

}  // namespace lockstep
