#include "lockstep/core/error.hpp"
#include "lockstep/core/little_endian.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/export/formats.hpp"
#include "lockstep/io/protobuf.hpp"
#include "metadata.hpp"
#include "onnx_fields.hpp"
#include "onnx_messages.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <variant>

namespace lockstep {
namespace {

using namespace onnx;
using protobuf::bytes_field;
using protobuf::bytes_header;
using protobuf::varint_field;

constexpr int ir_version = 8;
constexpr int opset = 17;
/// Of every message of protocol buffers.
constexpr std::uint64_t size_limit = std::uint64_t{1} << 31;

/// The mean or std of a model's inputs.
struct InputStatistic {
  const char* name;
  const std::vector<float>& values;
  float above;  ///< what all values must exceed
};

/// For each channel of images whose pixels are 0 to 255 instead of 0 to 1. Error(usage) if the
/// values are not usable.
std::vector<float> for_pixels(const InputStatistic& statistic, std::int64_t channels) {
  const std::vector<float>& values = statistic.values;
  const auto count = static_cast<std::size_t>(channels);
  const auto usable = [&](float value) { return std::isfinite(value) && value > statistic.above; };
  if ((values.size() != 1 && values.size() != count) || !std::ranges::all_of(values, usable)) {
    fail(ExitStatus::usage,
         "the {} of the inputs is [{}] (normalizing {} channels takes one finite value, or one a "
         "channel; std above 0); give --mean and --std",
         statistic.name, fmt::join(values, ", "), channels);
  }
  std::vector<float> result = values;
  result.resize(count, values.front());
  for (float& value : result) value *= 255;
  return result;
}

/// Builds GraphProto.
class GraphBuilder final {
 public:
  explicit GraphBuilder(const TrainedModel& model) : model_(model), logits_(model.graph.logits()) {}

  void add_normalization() {
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    const std::int64_t channels = model_.graph.input_shape()[0];
    add_elementwise("Sub", "subtract_mean",
                    for_pixels({.name = "mean", .values = model_.mean, .above = lowest}, channels));
    add_elementwise("Div", "divide_by_std",
                    for_pixels({.name = "std", .values = model_.std, .above = 0}, channels));
  }

  void add_network() {
    for (ValueId value = 0; value <= logits_; ++value) {
      const auto add = [&](const auto& op) {
        if constexpr (LayerOp<std::decay_t<decltype(op)>>) {
          add_op(op.onnx(node_at(value).output), value);
        }
      };
      std::visit(add, node_at(value).op);
    }
  }

  [[nodiscard]] FileParts build(const std::string& input_description) && {
    const Graph& graph = model_.graph;
    FileParts parts{{.bytes = nodes_ + bytes_field(GraphProto::name, graph.name())}};
    std::ranges::move(initializers_, std::back_inserter(parts));
    parts.push_back(
        {.bytes = bytes_field(GraphProto::input, value_info("images", node_at(graph.input()).output,
                                                            input_description)) +
                  bytes_field(GraphProto::output,
                              value_info("logits", node_at(logits_).output,
                                         "one a class; softmax gives probabilities"))});
    return parts;
  }

 private:
  [[nodiscard]] const Node& node_at(ValueId value) const {
    return model_.graph.nodes()[static_cast<std::size_t>(value)];
  }
  [[nodiscard]] const Parameter& parameter(ParameterId id) const {
    return model_.graph.parameters()[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const RunningStatistic& statistic(StatisticId id) const {
    return model_.graph.statistics()[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::string node_name(ValueId value) const {
    return unique_name(node_at(value).op, value);
  }
  [[nodiscard]] std::string value_name(ValueId value) const {
    if (value == logits_) return "logits";
    return value == model_.graph.input() ? input_ : node_name(value) + "_output";
  }

  void add_node(const NodeFields& fields) { nodes_ += bytes_field(GraphProto::node, node(fields)); }
  void add_initializer(const std::string& name, const Shape& shape, const FilePart& values,
                       ValueType type = ValueType::fp32) {
    FilePart part = tensor(name, shape, values, type);
    part.bytes.insert(0, bytes_header(GraphProto::initializer, part.size()));
    initializers_.push_back(std::move(part));
  }

  void add_op(const OnnxNodes& nodes, ValueId value) {
    add_initializers(value);
    std::vector<std::string> outputs;
    for (const OnnxNode& each : nodes) {
      const bool last = outputs.size() + 1 == nodes.size();
      NodeFields fields{.name = node_name(value), .op_type = each.type, .inputs = {}, .output = {}};
      if (!last) fields.name += fmt::format("/{}", outputs.size());  // no layer has such a name
      fields.output = last ? value_name(value) : fields.name + "_output";
      if (each.inputs.empty()) fields.inputs = all_inputs(value);
      for (const OnnxOperand& input : each.inputs) {
        fields.inputs.push_back(operand(input, value, outputs, fields.name + "_constant"));
      }
      for (const auto& given : each.attributes) {
        fields.attributes.push_back(std::visit(
            [&](const auto& content) { return attribute(given.first, content); }, given.second));
      }
      add_node(fields);
      outputs.push_back(fields.output);
    }
  }
  /// Its name; adds a constant, as `constant`. `outputs`: of the op's earlier nodes.
  std::string operand(const OnnxOperand& input, ValueId value, std::span<const std::string> outputs,
                      const std::string& constant) {
    switch (input.kind) {
      case OnnxOperand::Kind::value:
        return values_read(value)[input.index];
      case OnnxOperand::Kind::parameter:
        return parameter(node_at(value).parameters[input.index]).name;
      case OnnxOperand::Kind::node:
        return outputs[input.index];
      case OnnxOperand::Kind::constant:
        add_initializer(constant, {}, {.bytes = little_endian(input.constant)});
        break;
      case OnnxOperand::Kind::integers: {
        FilePart content;
        for (const std::int64_t each : input.list) content.bytes += little_endian(each);
        add_initializer(constant, {std::ssize(input.list)}, content, ValueType::int64);
        break;
      }
    }
    return constant;
  }
  [[nodiscard]] std::vector<std::string> values_read(ValueId value) const {
    std::vector<std::string> names;
    for_each_input(node_at(value).op, [&](ValueId input) { names.push_back(value_name(input)); });
    return names;
  }
  [[nodiscard]] std::vector<std::string> all_inputs(ValueId value) const {
    std::vector<std::string> names = values_read(value);
    for (const ParameterId id : node_at(value).parameters) names.push_back(parameter(id).name);
    for (const StatisticId id : node_at(value).statistics) names.push_back(statistic(id).name);
    return names;
  }
  void add_initializers(ValueId value) {
    for (const ParameterId id : node_at(value).parameters) {
      const auto& values = model_.parameters[static_cast<std::size_t>(id)];
      add_initializer(parameter(id).name, parameter(id).shape,
                      {.view = std::as_bytes(std::span(values))});
    }
    for (const StatisticId id : node_at(value).statistics) {
      const auto& values = model_.statistics[static_cast<std::size_t>(id)];
      add_initializer(statistic(id).name, {statistic(id).channels},
                      {.view = std::as_bytes(std::span(values))});
    }
  }

  /// Replaces the network's input by `op_type` of it and a value for each channel.
  void add_elementwise(const char* op_type, const std::string& name,
                       const std::vector<float>& values) {
    FilePart content;
    for (const float value : values) content.bytes += little_endian(value);
    add_initializer(name, {1, static_cast<std::int64_t>(values.size()), 1, 1}, content);
    const std::string output = name + "_output";
    add_node({.name = name, .op_type = op_type, .inputs = {input_, name}, .output = output});
    input_ = output;
  }

  const TrainedModel& model_;
  ValueId logits_;
  std::string input_ = "images";
  std::string nodes_;
  FileParts initializers_;
};

std::uint64_t size_of(const FileParts& parts) {
  std::uint64_t size = 0;
  for (const FilePart& part : parts) size += part.size();
  return size;
}

}  // namespace

FileParts onnx_file(const TrainedModel& model, OnnxInput input) {
  GraphBuilder builder(model);
  if (input == OnnxInput::pixels) builder.add_normalization();
  builder.add_network();
  FileParts parts = std::move(builder).build(
      input == OnnxInput::pixels ? "pixels from 0 to 255"
                                 : "(pixel / 255 - mean) / std, with each channel's mean and std");
  const std::uint64_t graph_size = size_of(parts);
  parts.insert(
      parts.begin(),
      FilePart{.bytes = varint_field(ModelProto::ir_version, ir_version) +
                        bytes_field(ModelProto::producer_name, "lockstep") +
                        bytes_field(ModelProto::producer_version, version()) +
                        bytes_field(ModelProto::doc_string,
                                    fmt::format("{} trained with lockstep", model.graph.name())) +
                        bytes_header(ModelProto::graph, graph_size)});
  std::string end =
      bytes_field(ModelProto::opset_import, varint_field(OperatorSetIdProto::version, opset));
  for (const auto& [key, value] : metadata(model)) {
    end += bytes_field(ModelProto::metadata_props, entry(key, value));
  }
  parts.push_back({.bytes = std::move(end)});
  if (const std::uint64_t size = size_of(parts); size >= size_limit) {
    fail(
        ExitStatus::usage,
        "an ONNX model of {} bytes (a protocol buffer has fewer than {}); use --format safetensors",
        size, size_limit);
  }
  return parts;
}

}  // namespace lockstep
