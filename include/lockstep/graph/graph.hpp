#pragma once

#include "lockstep/core/shape.hpp"
#include "lockstep/graph/ops.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// How a parameter is initialized.
enum class Initialization {
  zeros,
  ones,
  kaiming_normal_fan_out,  ///< normal, variance 2 / (out_channels * kernel_h * kernel_w)
  uniform_fan_in,          ///< uniform in +-1/sqrt(fan_in): torch.nn.Linear's and Conv2d's default
};

/// Kind of a parameter; decides weight decay and LARS scaling (`norm` and `bias` get neither).
enum class ParameterKind { weight, norm, bias };

/// A trained tensor, with torchvision's name and layout (conv OIHW, linear OI). I of a grouped
/// convolution are the input channels of one group.
struct Parameter {
  std::string name;
  Shape shape;
  ParameterKind kind;
  Initialization initialization;
  std::int64_t fan_in = 0;
  double lr_scale = 1;  ///< multiplies the learning rate; 0: frozen, it has no gradient

  [[nodiscard]] bool is_frozen() const noexcept { return lr_scale == 0; }
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

/// A batch-norm layer's running mean or running variance: fp32 (C,).
struct RunningStatistic {
  std::string name;  ///< "bn1.running_mean", "bn1.running_var"
  std::int64_t channels;
  float initial_value;    ///< 0 for means, 1 for variances
  bool is_fixed = false;  ///< training normalises with it, and leaves it as it is
  friend bool operator==(const RunningStatistic&, const RunningStatistic&) = default;
};

/// One op with its inferred output shape.
struct Node {
  Op op;
  Shape output;                         ///< without the batch axis: C,H,W or F; scalar for the loss
  std::vector<ParameterId> parameters;  ///< weight, then bias, if the op has them
  std::vector<StatisticId> statistics;  ///< batch_norm: running mean, running variance
};

/// A network as a list of ops in the order of computation. Each op adds one value, whose id is the
/// op's index. Node 0 is the image input; the last node is a loss. Adding an op
/// infers its shape; a mismatch is an Error(usage) that names the layer and both shapes.
class Graph final {
 public:
  Graph(std::string name, ImageShape image, std::int64_t classes);

  [[nodiscard]] ValueId input() const noexcept { return 0; }
  ValueId conv2d(ValueId input, const Conv2dOptions& options);
  ValueId batch_norm(ValueId input, const BatchNormOptions& options);
  ValueId relu(ValueId input);
  ValueId add(ValueId left, ValueId right);
  ValueId max_pool(ValueId input, const PoolOptions& options);
  /// Means of windows, as torch's AvgPool2d.
  ValueId avg_pool(ValueId input, const AvgPoolOptions& options);
  ValueId global_avg_pool(ValueId input);
  ValueId flatten(ValueId input);
  ValueId linear(ValueId input, const LinearOptions& options);
  /// Ends the graph with the sum of the samples' losses. With smoothing e, K classes and log p the
  /// log-softmax of the logits, the loss of a sample with label y is
  /// -(1 - e) * log p[y] - e / K * sum over k of log p[k], as torch's label_smoothing.
  ValueId softmax_cross_entropy(ValueId logits, const SoftmaxCrossEntropyOptions& options);
  /// Ends the graph with the sum of the samples' losses, each the mean over the classes of
  /// -t * log p - (1 - t) * log(1 - p), with p the sigmoid of the logit and t the smoothed target,
  /// as timm's BinaryCrossEntropy. Evaluation computes softmax cross entropy without smoothing.
  ValueId binary_cross_entropy(ValueId logits, const BinaryCrossEntropyOptions& options);

  void set_lr_scale(ParameterId id, double lr_scale) {
    parameters_[static_cast<std::size_t>(id)].lr_scale = lr_scale;
  }

  /// Fixes the running statistics of a batch norm, whose weight and bias must be frozen.
  void fix_statistics(const Node& norm);
  /// Whether a batch norm's running statistics are fixed.
  [[nodiscard]] bool has_fixed_statistics(const Node& norm) const {
    return statistics_[static_cast<std::size_t>(norm.statistics.front())].is_fixed;
  }
  /// Whether those of any batch norm are.
  [[nodiscard]] bool has_fixed_statistics() const {
    return std::ranges::any_of(statistics_, &RunningStatistic::is_fixed);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] ImageShape image() const noexcept { return image_; }
  [[nodiscard]] std::int64_t classes() const noexcept { return classes_; }
  [[nodiscard]] std::span<const Node> nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::span<const Parameter> parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::span<const RunningStatistic> statistics() const noexcept {
    return statistics_;
  }
  /// Number of trained values, without any engine's padding.
  [[nodiscard]] std::int64_t parameter_count() const;
  /// CRC-32C over ops, shapes and names: equal for networks that compute the same function of the
  /// same parameters. The loss, momentum and initial values are not included.
  [[nodiscard]] std::uint32_t fingerprint() const;

 private:
  ValueId append(Node node);
  ParameterId add_parameter(Parameter parameter);
  [[nodiscard]] const Shape& input_shape(ValueId value) const;
  [[nodiscard]] std::string describe(ValueId value) const;
  void require_loss(ValueId logits, double label_smoothing) const;

  std::string name_;
  ImageShape image_;
  std::int64_t classes_;
  std::vector<Node> nodes_;
  std::vector<Parameter> parameters_;
  std::vector<RunningStatistic> statistics_;
};

/// Why two networks cannot use the same parameters, as one architecture can for two sizes of
/// images: "fc1.weight is 512x768 or 512x1728", or that layers differ; empty if they can.
[[nodiscard]] std::string layer_difference(const Graph& one, const Graph& other);

/// By block, the probability with which stochastic depth drops it; empty if it drops none.
[[nodiscard]] std::vector<float> drop_probabilities(const Graph& graph);

/// Initial values of a parameter in plain layout: a pure function of (seed, parameter name, shape),
/// the same on every machine.
[[nodiscard]] std::vector<float> initial_values(const Parameter& parameter, std::uint64_t seed);

}  // namespace lockstep
