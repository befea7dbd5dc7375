// Ops of vision transformers, whose values are E,S,1: S tokens of E channels.

#include "lockstep/core/error.hpp"
#include "lockstep/graph/ops.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace lockstep {
namespace {

using In = OnnxOperand;
using Axes = std::vector<std::int64_t>;

}  // namespace

OpDefinition Tokens::define(const OpInputs& in) const {
  const Shape& image = in.image(options.class_token);
  const std::int64_t tokens = 1 + image[1] * image[2];
  constexpr double deviation = 0.02;
  return {.output = {image[0], tokens, 1},
          .parameters = {{.name = options.class_token,
                          .shape = {1, 1, image[0]},
                          .kind = ParameterKind::embedding,
                          .initialization = Initialization::zeros},
                         {.name = options.positions,
                          .shape = {1, tokens, image[0]},
                          .kind = ParameterKind::embedding,
                          .initialization = Initialization::normal,
                          .deviation = deviation}}};
}

// Pads and adds, since a concatenation needs the class token once a sample.
OnnxNodes Tokens::onnx(const Shape& output) const {
  const std::int64_t pixels = output[1] - 1;
  const auto transposed = [](std::size_t parameter) {
    return OnnxNode{.type = "Transpose",
                    .attributes = {{"perm", Axes{0, 2, 1}}},
                    .inputs = {In::parameter(parameter)}};
  };
  return {{.type = "Reshape", .inputs = {In::value(), In::integers({0, output[0], pixels})}},
          {.type = "Pad", .inputs = {In::node(0), In::integers({0, 0, 1, 0, 0, 0})}},
          transposed(0),
          {.type = "Pad", .inputs = {In::node(2), In::integers({0, 0, 0, 0, 0, pixels})}},
          transposed(1),
          {.type = "Add", .inputs = {In::node(1), In::node(3)}},
          {.type = "Add", .inputs = {In::node(5), In::node(4)}},
          {.type = "Unsqueeze", .inputs = {In::node(6), In::integers({3})}}};
}

OpDefinition FirstToken::define(const OpInputs& in) const {
  return {.output = {in.image("first_token")[0]}};
}

OnnxNodes FirstToken::onnx(const Shape& output) const {
  return {{.type = "Gather",
           .attributes = {{"axis", std::int64_t{2}}},
           .inputs = {In::value(), In::integers({0})}},
          {.type = "Reshape", .inputs = {In::node(0), In::integers({0, output[0]})}}};
}

OpDefinition Attention::define(const OpInputs& in) const {
  const Shape& value = in.image(options.name);
  const std::int64_t heads = options.heads;
  if (heads < 1 || value[0] % (3 * heads) != 0 || value[2] != 1) {
    fail(ExitStatus::usage,
         "{}: attention with {} heads over {} (the channels are q, k and v of all heads, and the "
         "width is 1)",
         options.name, heads, to_string(value));
  }
  const std::int64_t channels = value[0] / 3;
  return {.output = {channels, value[1], 1},
          .multiply_adds = 2 * value[1] * value[1] * channels,
          .function = fmt::format(" h{}", heads)};
}

OnnxNodes Attention::onnx(const Shape& output) const {
  const std::int64_t width = output[0] / options.heads;
  const float factor = 1.0F / std::sqrt(static_cast<float>(width));
  const auto part = [](std::int64_t index) {
    return OnnxNode{.type = "Gather",
                    .attributes = {{"axis", std::int64_t{1}}},
                    .inputs = {In::node(0), In::integers({index})}};
  };
  const auto transposed = [](std::size_t node) {
    return OnnxNode{.type = "Transpose",
                    .attributes = {{"perm", Axes{0, 1, 2, 4, 3}}},
                    .inputs = {In::node(node)}};
  };
  return {{.type = "Reshape",
           .inputs = {In::value(), In::integers({0, 3, options.heads, width, output[1]})}},
          part(0),
          part(1),
          part(2),
          transposed(1),
          {.type = "MatMul", .inputs = {In::node(4), In::node(2)}},
          {.type = "Mul", .inputs = {In::node(5), In::number(factor)}},
          {.type = "Softmax", .attributes = {{"axis", std::int64_t{-1}}}, .inputs = {In::node(6)}},
          transposed(7),
          {.type = "MatMul", .inputs = {In::node(3), In::node(8)}},
          {.type = "Reshape", .inputs = {In::node(9), In::integers({0, output[0], output[1], 1})}}};
}

}  // namespace lockstep
