#include "lockstep/step/step_graph.hpp"

#include "index.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
void require_complete(const Graph& graph) {
  const std::size_t count = graph.nodes().size();
  if (!is_loss(graph.nodes().back().op)) {
    fail(ExitStatus::usage,
         "graph '{}' cannot be compiled (it does not end in a loss, such as "
         "softmax_cross_entropy); add the loss",
         graph.name());
  }
  std::vector<bool> used(count);
  for (const Node& node : graph.nodes()) {
    for_each_input(node.op, [&](ValueId input) { used[at(input)] = true; });
  }
  for (std::size_t id = 0; id + 1 < count; ++id) {
    if (used[id]) continue;
    fail(ExitStatus::usage,
         "graph '{}' cannot be compiled (nothing uses the output of node {}); remove the node",
         graph.name(), id);
  }
}

std::vector<StepValueId> StepOp::reads() const {
  std::vector<StepValueId> ids = inputs;
  if (kind != Kind::gradient) return ids;
  for (const auto& id : {output, saved}) {
    if (id) ids.push_back(*id);
  }
  ids.insert(ids.end(), grad_output.begin(), grad_output.end());
  return ids;
}

std::vector<StepValueId> StepOp::writes() const {
  std::vector<StepValueId> ids;
  const auto add = [&](const std::optional<StepValueId>& id) {
    if (id) ids.push_back(*id);
  };
  std::ranges::for_each(grad_inputs, add);
  if (kind == Kind::gradient) return ids;
  add(output);
  add(saved);
  return ids;
}

StepValueId StepGraph::add(StepValue value) {
  values.push_back(value);
  return static_cast<StepValueId>(values.size() - 1);
}

std::vector<std::size_t> StepGraph::last_uses() const {
  std::vector<std::size_t> result(values.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (const StepValueId id : ops[i].reads()) result[at(id)] = i;
  }
  return result;
}

StepGraph forward_steps(const Graph& graph) {
  require_complete(graph);
  StepGraph steps;
  steps.values.reserve(graph.nodes().size());
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    const auto value = steps.add({.kind = StepValue::Kind::value, .of = static_cast<ValueId>(id)});
    const Op& op = graph.nodes()[id].op;
    if (std::holds_alternative<Input>(op)) continue;
    StepOp step{.kind = is_loss(op) ? StepOp::Kind::loss : StepOp::Kind::forward, .node = value};
    for_each_input(op, [&](ValueId input) { step.inputs.push_back(input); });
    if (!is_loss(op)) step.output = value;
    steps.ops.push_back(std::move(step));
  }
  return steps;
}

std::vector<bool> needs_gradient(const Graph& graph) {
  std::vector<bool> needed(graph.nodes().size());
  for (std::size_t id = 0; id < needed.size(); ++id) {
    const Node& node = graph.nodes()[id];
    bool any = std::ranges::any_of(node.parameters, [&](ParameterId parameter) {
      return !graph.parameters()[at(parameter)].is_frozen();
    });
    for_each_input(node.op, [&](ValueId input) { any = any || needed[at(input)]; });
    needed[id] = any;
  }
  return needed;
}

std::vector<ParameterId> gradient_order(const Graph& graph) {
  std::vector<ParameterId> order;
  order.reserve(graph.parameters().size());
  for (std::size_t id = graph.nodes().size(); id-- > 0;) {
    const auto& parameters = graph.nodes()[id].parameters;
    order.insert(order.end(), parameters.begin(), parameters.end());
  }
  return order;
}

StepGraph training_steps(const Graph& graph, const Fusions& fusions, Recompute what) {
  StepGraph steps = fuse(forward_steps(graph), graph, fusions);
  steps = differentiate(std::move(steps), graph, fusions);
  return recompute(std::move(steps), graph, what);
}

}  // namespace lockstep
