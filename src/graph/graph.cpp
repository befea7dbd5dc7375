#include "lockstep/graph/graph.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace lockstep {
namespace {

/// Inputs and options that the op's function depends on. Training-only settings (momentum,
/// smoothing, initial weights) may differ.
std::string details_of(const Node& node) {
  std::string text;
  for_each_input(node.op, [&](ValueId input) { text += " <" + std::to_string(input); });
  return text + node.function;
}

void require_initial_values(const Parameter& parameter) {
  using enum Initialization;
  const bool is_xavier = parameter.initialization == xavier_uniform;
  if (is_xavier && parameter.shape.rank() < 2) {
    fail(ExitStatus::usage, "{} is {} (xavier_uniform is for weights, of two axes or more)",
         parameter.name, to_string(parameter.shape));
  }
  if (parameter.initialization == normal && !(parameter.deviation > 0)) {
    fail(ExitStatus::usage, "{} has normal values of standard deviation {} (above 0 is needed)",
         parameter.name, parameter.deviation);
  }
}

}  // namespace

const Shape& OpInputs::image(const std::string& layer) const {
  if (shapes[0].rank() == 3) return shapes[0];
  fail(ExitStatus::usage, "{} takes a C,H,W input, but gets {}", layer, to_string(shapes[0]));
}

std::string_view op_name(const Op& op) {
  return std::visit([](const auto& each) { return each.op_name; }, op);
}

/// Null for an op without one.
static const std::string* given_name(const Op& op) {
  return std::visit(
      [](const auto& each) -> const std::string* {
        if constexpr (requires { each.options.name; }) return &each.options.name;
        return nullptr;
      },
      op);
}

std::string layer_name(const Op& op) {
  const std::string* const name = given_name(op);
  return name != nullptr ? *name : std::string(op_name(op));
}

std::string unique_name(const Op& op, ValueId id) {
  const std::string* const name = given_name(op);
  return name != nullptr ? *name : fmt::format("{}_{}", op_name(op), id);
}

Graph::Graph(std::string name, const Shape& input) : name_(std::move(name)) {
  append(Input{input});
}

OpInputs Graph::inputs_of(const Op& op) const {
  if (!nodes_.empty() && is_loss(nodes_.back().op)) {
    fail(ExitStatus::usage, "{}: an op after the loss ({} ends the graph)", name_,
         layer_name(nodes_.back().op));
  }
  OpInputs result{.graph = name_, .shapes = {}, .names = {}};
  for_each_input(op, [&](ValueId value) {
    if (value < 0 || static_cast<std::size_t>(value) >= nodes_.size()) {
      fail(ExitStatus::usage, "{}: value {} is not in the graph (it has {} ops)", name_, value,
           nodes_.size());
    }
    const Node& node = nodes_[static_cast<std::size_t>(value)];
    result.shapes.push_back(node.output);
    result.names.push_back(
        fmt::format("{} (op {}, {})", layer_name(node.op), value, to_string(node.output)));
  });
  return result;
}

void Graph::require_usable(const Op& op, const std::vector<Parameter>& parameters) const {
  for (const Parameter& parameter : parameters) {
    require_initial_values(parameter);
    if (std::ranges::find(parameters_, parameter.name, &Parameter::name) == parameters_.end()) {
      continue;
    }
    fail(ExitStatus::usage, "{}: two parameters are named {} (layer names must differ)", name_,
         parameter.name);
  }
  const std::string* const name = given_name(op);
  const auto has_it = [&](const Node& node) {
    const std::string* const other = given_name(node.op);
    return name != nullptr && other != nullptr && *name == *other;
  };
  if (std::ranges::any_of(nodes_, has_it)) {
    fail(ExitStatus::usage, "{}: two layers are named '{}' (layer names must differ)", name_,
         *name);
  }
}

ValueId Graph::append(Op op) {
  const OpInputs inputs = inputs_of(op);
  OpDefinition defined = std::visit([&](const auto& each) { return each.define(inputs); }, op);
  // Before any of them is added, so that a rejected op leaves nothing behind.
  require_usable(op, defined.parameters);
  Node node{.op = std::move(op),
            .output = defined.output,
            .parameters = {},
            .statistics = {},
            .multiply_adds = defined.multiply_adds,
            .function = std::move(defined.function),
            .stage = stage_,
            .block = block_};
  for (Parameter& parameter : defined.parameters) {
    node.parameters.push_back(static_cast<ParameterId>(parameters_.size()));
    parameters_.push_back(std::move(parameter));
  }
  for (RunningStatistic& statistic : defined.statistics) {
    node.statistics.push_back(static_cast<StatisticId>(statistics_.size()));
    statistics_.push_back(std::move(statistic));
  }
  nodes_.push_back(std::move(node));
  return static_cast<ValueId>(nodes_.size() - 1);
}

ValueId Graph::logits() const {
  auto value = static_cast<ValueId>(nodes_.size()) - 1;
  if (is_loss(nodes_.back().op)) for_each_input(nodes_.back().op, [&](ValueId id) { value = id; });
  return value;
}

std::int64_t Graph::outputs() const {
  return nodes_[static_cast<std::size_t>(logits())].output.elements();
}

void Graph::fix_statistics(const Node& norm) {
  for (const ParameterId id : norm.parameters) {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(id)];
    if (parameter.is_frozen()) continue;
    fail(ExitStatus::usage,
         "{}: the running statistics of a norm whose {} is trained cannot be fixed; freeze it",
         name_, parameter.name);
  }
  for (const StatisticId id : norm.statistics) {
    statistics_[static_cast<std::size_t>(id)].is_fixed = true;
  }
}

std::int64_t Graph::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.shape.elements();
  return count;
}

std::uint32_t Graph::fingerprint() const {
  std::string text = name_ + '\n';
  for (const Node& node : nodes_) {
    // A network is the same with another loss.
    const std::size_t index =
        is_loss(node.op) ? Op(SoftmaxCrossEntropy{}).index() : node.op.index();
    text += std::to_string(index) + ' ' + to_string(node.output) + details_of(node) + '\n';
  }
  for (const Parameter& parameter : parameters_) {
    text += parameter.name + ' ' + to_string(parameter.shape) + '\n';
  }
  return crc32c(text);
}

std::vector<float> drop_probabilities(const Graph& graph) {
  std::vector<float> result;
  for (const Node& node : graph.nodes()) {
    const auto* norm = std::get_if<BatchNorm>(&node.op);
    if (norm == nullptr || norm->options.drop.probability == 0) continue;
    const auto block = static_cast<std::size_t>(norm->options.drop.block);
    result.resize(std::max(result.size(), block + 1));
    result[block] = static_cast<float>(norm->options.drop.probability);
  }
  return result;
}

std::string layer_difference(const Graph& one, const Graph& other, bool resizes_embeddings) {
  const auto same_parameter = [&](const Parameter& left, const Parameter& right) {
    const bool resized = resizes_embeddings && left.kind == ParameterKind::embedding;
    return left.name == right.name && (resized || left.shape == right.shape);
  };
  const auto [left, right] =
      std::ranges::mismatch(one.parameters(), other.parameters(), same_parameter);
  const bool ends = left == one.parameters().end() || right == other.parameters().end();
  if (!ends && left->name == right->name) {
    return fmt::format("{} is {} or {}", left->name, to_string(left->shape),
                       to_string(right->shape));
  }
  const auto same_op = [](const Node& left_node, const Node& right_node) {
    return left_node.op.index() == right_node.op.index() &&
           details_of(left_node) == details_of(right_node);
  };
  const bool same = std::ranges::equal(one.parameters(), other.parameters(), same_parameter) &&
                    std::ranges::equal(one.nodes(), other.nodes(), same_op);
  return same ? "" : "it has other layers";
}

}  // namespace lockstep
