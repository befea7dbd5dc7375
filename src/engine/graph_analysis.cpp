#include "graph_analysis.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <type_traits>

namespace lockstep {
namespace {

std::size_t at(ValueId value) {
  return static_cast<std::size_t>(value);
}

/// Whether the op's output must not be overwritten: backward reads it (ReLU), or it may share
/// memory with another value (images, flatten).
bool keeps_output(const Op& op) {
  return std::holds_alternative<Input>(op) || std::holds_alternative<Relu>(op) ||
         std::holds_alternative<Flatten>(op);
}

/// Whether backward reads the op's input.
bool keeps_input(const Op& op) {
  return std::holds_alternative<Conv2d>(op) || std::holds_alternative<BatchNorm>(op) ||
         std::holds_alternative<Linear>(op) || std::holds_alternative<Flatten>(op);
}

/// Fuses an addition into the operand that is computed last, if that is a norm with no other
/// consumer: the other operand is then available.
void fuse_sums(const Graph& graph, GraphAnalysis& analysis) {
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    const auto* add = std::get_if<Add>(&graph.nodes()[id].op);
    if (add == nullptr) continue;
    const std::size_t last = at(std::max(add->left, add->right));
    if (analysis.consumers[last] != 1) continue;
    if (!std::holds_alternative<BatchNorm>(graph.nodes()[last].op)) continue;
    analysis.sum_of[last] = static_cast<ValueId>(id);
    analysis.fused_away[id] = true;
  }
}

/// Pairs a norm with the norm that computes the addition of its value, if that addition is its only
/// consumer. Excludes norms of images: no earlier node's backward reports their gradients as final.
/// Of the two, only the added norm may have stochastic depth.
void pair_norms(const Graph& graph, GraphAnalysis& analysis) {
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    const auto addend = analysis.addend_of(graph, static_cast<ValueId>(id));
    if (!addend || analysis.consumers[at(*addend)] != 1) continue;
    if (std::get<BatchNorm>(graph.nodes()[id].op).options.drop.probability != 0) continue;
    const auto* norm = std::get_if<BatchNorm>(&graph.nodes()[at(*addend)].op);
    if (norm == nullptr || !analysis.needs_gradient[at(norm->input)]) continue;
    analysis.added_to[at(*addend)] = static_cast<ValueId>(id);
  }
}

void fuse_relus(const Graph& graph, GraphAnalysis& analysis) {
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    const auto* relu = std::get_if<Relu>(&graph.nodes()[id].op);
    if (relu == nullptr || analysis.consumers[at(relu->input)] != 1) continue;
    const Op& producer = graph.nodes()[at(relu->input)].op;
    if (!std::holds_alternative<BatchNorm>(producer) && !std::holds_alternative<Add>(producer)) {
      continue;
    }
    analysis.relu_of[at(relu->input)] = static_cast<ValueId>(id);
    analysis.fused_away[id] = true;
  }
}

/// Maximum length of a chain of values recomputed from each other; the next value is kept. All
/// values of a chain are live at once, so a chain of all adds of a deep network would save nothing.
constexpr int longest_chain = 8;

/// Includes the other operand of a fused addition.
std::vector<ValueId> inputs_with_addend(const Graph& graph, const GraphAnalysis& analysis,
                                        ValueId id) {
  std::vector<ValueId> inputs = inputs_of(graph.nodes()[at(id)].op);
  if (const auto addend = analysis.addend_of(graph, id)) inputs.push_back(*addend);
  return inputs;
}

void find_recomputable(const Graph& graph, GraphAnalysis& analysis) {
  // By value: number of recomputed values before it; empty if it is not available in backward.
  std::vector<std::optional<int>> chain(graph.nodes().size());
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    const Op& op = graph.nodes()[id].op;
    const std::size_t value = at(analysis.output_of(static_cast<ValueId>(id)));
    if (analysis.fused_away[id]) continue;
    if (analysis.read_in_backward[value] || std::holds_alternative<Relu>(op)) chain[value] = 0;
    if (!std::holds_alternative<BatchNorm>(op) && !std::holds_alternative<Add>(op)) continue;
    int longest = 0;
    bool there = true;
    for (const ValueId input : inputs_with_addend(graph, analysis, static_cast<ValueId>(id))) {
      there = there && chain[at(input)].has_value();
      longest = std::max(longest, chain[at(input)].value_or(0));
    }
    if (!there || longest >= longest_chain) continue;
    chain[value] = longest + 1;
    analysis.recomputable[value] = true;
  }
}

/// Error(usage) unless the graph ends in the loss and every other value is used.
void require_complete(const Graph& graph, const std::vector<int>& consumers) {
  const std::size_t count = graph.nodes().size();
  if (count == 0 || !is_loss(graph.nodes().back().op)) {
    fail(ExitStatus::usage,
         "graph '{}' cannot be compiled (it does not end in a loss, such as "
         "softmax_cross_entropy); add the loss",
         graph.name());
  }
  for (std::size_t id = 0; id + 1 < count; ++id) {
    if (consumers[id] == 0) {
      fail(ExitStatus::usage,
           "graph '{}' cannot be compiled (nothing uses the output of node {}); remove the node",
           graph.name(), id);
    }
  }
}

void find_overwritable(const Graph& graph, GraphAnalysis& analysis) {
  const std::size_t count = graph.nodes().size();
  for (std::size_t id = 0; id < count; ++id) {
    if (!keeps_input(graph.nodes()[id].op)) continue;
    for (const ValueId input : inputs_of(graph.nodes()[id].op))
      analysis.read_in_backward[at(input)] = true;
  }
  for (std::size_t id = 0; id < count; ++id) {
    const Op& op = graph.nodes()[id].op;
    // A norm that computes its ReLU keeps the mask; an add does not.
    const auto* relu = std::get_if<Relu>(&op);
    const bool norm_relu = relu != nullptr && analysis.fused_away[id] &&
                           (std::holds_alternative<BatchNorm>(graph.nodes()[at(relu->input)].op) ||
                            analysis.fused_away[at(relu->input)]);
    const bool kept = keeps_output(op) && !norm_relu;
    analysis.overwritable[id] =
        analysis.consumers[id] == 1 && !analysis.read_in_backward[id] && !kept;
    analysis.overwritable_in_backward[id] = analysis.consumers[id] == 1 && !kept;
    // Images and flatten's outputs may share memory with another value.
    analysis.overwritable_in_inference[id] = analysis.consumers[id] == 1 &&
                                             !std::holds_alternative<Input>(op) &&
                                             !std::holds_alternative<Flatten>(op);
  }
}

}  // namespace

std::vector<ValueId> inputs_of(const Op& op) {
  return std::visit(
      [](const auto& typed) -> std::vector<ValueId> {
        using T = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<T, Input>) {
          return {};
        } else if constexpr (std::is_same_v<T, Add>) {
          return {typed.left, typed.right};
        } else {
          return {typed.input};
        }
      },
      op);
}

std::optional<ValueId> GraphAnalysis::addend_of(const Graph& graph, ValueId norm) const {
  const auto& sum = sum_of[at(norm)];
  if (!sum) return std::nullopt;
  const auto& add = std::get<Add>(graph.nodes()[at(*sum)].op);
  return add.left == norm ? add.right : add.left;
}

GraphAnalysis analyse(const Graph& graph) {
  const std::size_t count = graph.nodes().size();
  GraphAnalysis analysis{.consumers = std::vector<int>(count, 0),
                         .needs_gradient = std::vector<bool>(count, false),
                         .sum_of = std::vector<std::optional<ValueId>>(count),
                         .relu_of = std::vector<std::optional<ValueId>>(count),
                         .added_to = std::vector<std::optional<ValueId>>(count),
                         .pooled_by = std::vector<std::optional<ValueId>>(count),
                         .fused_away = std::vector<bool>(count, false),
                         .overwritable = std::vector<bool>(count, false),
                         .overwritable_in_inference = std::vector<bool>(count, false),
                         .overwritable_in_backward = std::vector<bool>(count, false),
                         .read_in_backward = std::vector<bool>(count, false),
                         .recomputable = std::vector<bool>(count, false),
                         .ready = {}};
  for (std::size_t id = 0; id < count; ++id) {
    const Node& node = graph.nodes()[id];
    bool needed = std::ranges::any_of(node.parameters, [&](ParameterId parameter) {
      return !graph.parameters()[static_cast<std::size_t>(parameter)].is_frozen();
    });
    for (const ValueId input : inputs_of(node.op)) {
      ++analysis.consumers[at(input)];
      needed = needed || analysis.needs_gradient[at(input)];
    }
    analysis.needs_gradient[id] = needed;
  }
  require_complete(graph, analysis.consumers);
  fuse_sums(graph, analysis);
  pair_norms(graph, analysis);
  fuse_relus(graph, analysis);
  find_overwritable(graph, analysis);
  find_recomputable(graph, analysis);
  for (std::size_t id = count; id-- > 0;) {
    const auto& parameters = graph.nodes()[id].parameters;
    analysis.ready.insert(analysis.ready.end(), parameters.begin(), parameters.end());
  }
  return analysis;
}

}  // namespace lockstep
