#pragma once

#include "lockstep/core/shape.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

using ValueId = int;      ///< index of a node's output
using ParameterId = int;  ///< index into Graph::parameters()
using StatisticId = int;  ///< index into Graph::statistics()

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
  double momentum = 0.1;  ///< weight of the new batch
  bool is_fixed = false;  ///< training normalises with it, and leaves it as it is
  friend bool operator==(const RunningStatistic&, const RunningStatistic&) = default;
};

/// What an op's definition is told of its place in a graph.
struct OpInputs {
  std::string_view graph;  ///< its name
  std::int64_t classes;
  std::vector<Shape> shapes;       ///< of the values that it reads, without the batch axis
  std::vector<std::string> names;  ///< of these values: "conv1 (op 1, 64x56x56)"

  /// The first one's C,H,W, which `layer` needs.
  [[nodiscard]] const Shape& image(const std::string& layer) const;
};

/// What an op is in its place. Errors are Error(usage) that names the layer and the shapes.
struct OpDefinition {
  Shape output;  ///< without the batch axis: C,H,W or F; scalar for a loss
  std::vector<Parameter> parameters = {};  ///< weight, then bias, if the op has them
  std::vector<RunningStatistic> statistics = {};
  std::int64_t multiply_adds = 0;  ///< per image; only those of convolutions and linear layers
  /// Options on which the op's function depends, not those of training: " k3 s1 p1".
  std::string function = {};
};

/// One op of backward: what it computes from the gradient of an op's output, and what else it
/// reads. An op's list of them, in order, is its derivative for all engines; if that is empty, the
/// gradient of its output is the gradient of each input.
struct GradientOp {
  bool of_inputs = true;
  bool of_parameters = false;
  bool reads_inputs = false;
  bool reads_output = false;
  bool reads_saved = false;  ///< what forward saves besides the output: positions, a mask
  bool reads_parameters = false;
};

/// An op of ONNX, whose inputs are those of ours, its parameters and its statistics.
struct OnnxOp {
  using Attribute = std::variant<std::int64_t, float, std::vector<std::int64_t>>;
  const char* type;
  std::vector<std::pair<const char*, Attribute>> attributes = {};
};

}  // namespace lockstep
