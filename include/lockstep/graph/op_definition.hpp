#pragma once

#include "lockstep/core/shape.hpp"

#include <cstddef>
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
  xavier_uniform,          ///< uniform in +-sqrt(6 / (fan_in + fan_out)), of a weight
  normal                   ///< standard deviation `deviation`, clipped to +-2
};

/// Kind of a parameter; decides weight decay and LARS scaling, which only a `weight` gets.
enum class ParameterKind { weight, norm, bias, embedding };

/// A trained tensor, with torchvision's name and layout (conv OIHW, linear OI). I of a grouped
/// convolution are the input channels of one group.
struct Parameter {
  std::string name;
  Shape shape;
  ParameterKind kind;
  Initialization initialization;
  std::int64_t fan_in = 0;
  double deviation = 0;
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
  std::string_view graph;          ///< its name
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
  std::int64_t multiply_adds = 0;  ///< of a sample; of products of matrices alone
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

/// What a node of ONNX reads.
struct OnnxOperand {
  enum class Kind { value, parameter, node, constant, integers };
  Kind kind;
  std::size_t index = 0;  ///< of the op's value or parameter, or of an earlier node of its list
  float constant = 0;
  std::vector<std::int64_t> list = {};  ///< a tensor of one axis

  [[nodiscard]] static OnnxOperand value(std::size_t index = 0) { return {Kind::value, index}; }
  [[nodiscard]] static OnnxOperand parameter(std::size_t index) { return {Kind::parameter, index}; }
  [[nodiscard]] static OnnxOperand node(std::size_t index) { return {Kind::node, index}; }
  [[nodiscard]] static OnnxOperand number(float value) { return {Kind::constant, 0, value}; }
  [[nodiscard]] static OnnxOperand integers(std::vector<std::int64_t> list) {
    return {Kind::integers, 0, 0, std::move(list)};
  }
};
/// A node of ONNX (opset 17) with one output.
struct OnnxNode {
  using Attribute = std::variant<std::int64_t, float, std::vector<std::int64_t>>;
  const char* type;
  std::vector<std::pair<const char*, Attribute>> attributes = {};
  /// Empty: the values that our op reads, its parameters and its statistics.
  std::vector<OnnxOperand> inputs = {};
};
/// The nodes that compute one of our ops, in order; the last one computes its value.
using OnnxNodes = std::vector<OnnxNode>;

}  // namespace lockstep
