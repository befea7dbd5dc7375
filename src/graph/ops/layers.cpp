// Ops on values of any place or size: linear layers, norms, elementwise ops.

#include "lockstep/core/error.hpp"
#include "lockstep/graph/ops.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

OpDefinition Input::define(const OpInputs& in) const {
  if ((shape.rank() != 1 && shape.rank() != 3) || std::ranges::min(shape.extents()) < 1) {
    fail(ExitStatus::usage, "{}: an input of {} (it must be flat, or CxHxW; at least 1 each)",
         in.graph, to_string(shape));
  }
  return {.output = shape};
}

OpDefinition BatchNorm::define(const OpInputs& in) const {
  const std::string& name = options.name;
  const StochasticDepth& drop = options.drop;
  const Shape& image = in.image(name);
  if (!(drop.probability >= 0 && drop.probability < 1) || drop.block < 0 ||
      drop.block >= max_dropped_blocks) {
    fail(ExitStatus::usage,
         "{}: block {} dropped with probability {} (it must be a block of 0 to {}, and a "
         "probability of at least 0 and below 1)",
         name, drop.block, drop.probability, max_dropped_blocks - 1);
  }
  const std::int64_t channels = image[0];
  const auto vector = [&](const char* suffix, Initialization initialization) {
    return Parameter{.name = name + suffix,
                     .shape = {channels},
                     .kind = ParameterKind::norm,
                     .initialization = initialization};
  };
  const auto statistic = [&](const char* suffix, float initial) {
    return RunningStatistic{.name = name + suffix,
                            .channels = channels,
                            .initial_value = initial,
                            .momentum = options.momentum};
  };
  return {.output = image,
          .parameters = {vector(".weight", options.zero_init_weight ? Initialization::zeros
                                                                    : Initialization::ones),
                         vector(".bias", Initialization::zeros)},
          .statistics = {statistic(".running_mean", 0), statistic(".running_var", 1)},
          .function = fmt::format(" e{:.17g}", options.eps)};
}

OnnxNodes BatchNorm::onnx(const Shape& /*output*/) const {
  return {
      {.type = "BatchNormalization", .attributes = {{"epsilon", static_cast<float>(options.eps)}}}};
}

OpDefinition LayerNorm::define(const OpInputs& in) const {
  const Shape& value = in.shapes[0];
  const auto vector = [&](const char* suffix, Initialization initialization) {
    return Parameter{.name = options.name + suffix,
                     .shape = {value[0]},
                     .kind = ParameterKind::norm,
                     .initialization = initialization};
  };
  return {.output = value,
          .parameters = {vector(".weight", Initialization::ones),
                         vector(".bias", Initialization::zeros)},
          .function = fmt::format(" e{:.17g}", options.eps)};
}

OnnxNodes LayerNorm::onnx(const Shape& output) const {
  using In = OnnxOperand;
  using Axes = std::vector<std::int64_t>;
  OnnxNode norm{
      .type = "LayerNormalization",
      .attributes = {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(options.eps)}}};
  if (output.rank() == 1) return {norm};
  norm.inputs = {In::node(0), In::parameter(0), In::parameter(1)};
  return {
      {.type = "Transpose", .attributes = {{"perm", Axes{0, 2, 3, 1}}}, .inputs = {In::value()}},
      norm,
      {.type = "Transpose", .attributes = {{"perm", Axes{0, 3, 1, 2}}}, .inputs = {In::node(1)}}};
}

OpDefinition Relu::define(const OpInputs& in) const {
  return {.output = in.shapes[0]};
}

OnnxNodes Relu::onnx(const Shape& /*output*/) const {
  return {{.type = "Relu"}};
}

OpDefinition Gelu::define(const OpInputs& in) const {
  return {.output = in.shapes[0]};
}

OnnxNodes Gelu::onnx(const Shape& /*output*/) const {
  using In = OnnxOperand;
  return {{.type = "Div", .inputs = {In::value(), In::number(1.41421356F)}},
          {.type = "Erf", .inputs = {In::node(0)}},
          {.type = "Add", .inputs = {In::node(1), In::number(1)}},
          {.type = "Mul", .inputs = {In::value(), In::node(2)}},
          {.type = "Mul", .inputs = {In::node(3), In::number(0.5F)}}};
}

OpDefinition Add::define(const OpInputs& in) const {
  if (in.shapes[0] != in.shapes[1]) {
    fail(ExitStatus::usage, "{}: add of {} and {} (their shapes must be equal)", in.graph,
         in.names[0], in.names[1]);
  }
  return {.output = in.shapes[0]};
}

OnnxNodes Add::onnx(const Shape& /*output*/) const {
  return {{.type = "Add"}};
}

OpDefinition Flatten::define(const OpInputs& in) const {
  return {.output = {in.shapes[0].elements()}};
}

OnnxNodes Flatten::onnx(const Shape& /*output*/) const {
  return {{.type = "Flatten", .attributes = {{"axis", std::int64_t{1}}}}};
}

OpDefinition Linear::define(const OpInputs& in) const {
  const Shape& value = in.shapes[0];
  if (options.out_features < 1) {
    fail(ExitStatus::usage, "{}: {} output features (at least 1 is needed)", options.name,
         options.out_features);
  }
  const std::int64_t in_features = value[0];
  const auto parameter = [&](const char* suffix, const Shape& shape, ParameterKind kind,
                             const std::optional<InitialValues>& initial) {
    const InitialValues values = initial.value_or(InitialValues{Initialization::uniform_fan_in});
    return Parameter{.name = options.name + options.separator + suffix,
                     .shape = shape,
                     .kind = kind,
                     .initialization = values.initialization,
                     .fan_in = in_features,
                     .deviation = values.deviation};
  };
  const Shape weight{options.out_features, in_features};
  OpDefinition result{
      .output = {options.out_features},
      .parameters = {parameter("weight", weight, ParameterKind::weight, options.initial_weight),
                     parameter("bias", {options.out_features}, ParameterKind::bias,
                               options.initial_bias)},
      .multiply_adds = weight.elements()};
  if (value.rank() == 3) {
    result.output = {options.out_features, value[1], value[2]};
    result.multiply_adds *= value[1] * value[2];
  }
  return result;
}

OnnxNodes Linear::onnx(const Shape& output) const {
  if (output.rank() == 1) {
    return {{.type = "Gemm", .attributes = {{"transB", std::int64_t{1}}}}};
  }
  using In = OnnxOperand;
  using Axes = std::vector<std::int64_t>;
  return {
      {.type = "Transpose", .attributes = {{"perm", Axes{0, 2, 3, 1}}}, .inputs = {In::value()}},
      {.type = "Transpose", .attributes = {{"perm", Axes{1, 0}}}, .inputs = {In::parameter(0)}},
      {.type = "MatMul", .inputs = {In::node(0), In::node(1)}},
      {.type = "Add", .inputs = {In::node(2), In::parameter(1)}},
      {.type = "Transpose", .attributes = {{"perm", Axes{0, 3, 1, 2}}}, .inputs = {In::node(3)}}};
}

}  // namespace lockstep
