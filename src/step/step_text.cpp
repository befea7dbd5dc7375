#include "lockstep/step/step_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

namespace lockstep {
namespace {

std::string node_name(const Graph& graph, ValueId node) {
  return unique_name(graph.nodes()[static_cast<std::size_t>(node)].op, node);
}

}  // namespace

std::string_view kind_name(const StepOp& op) {
  using Kind = StepOp::Kind;
  switch (op.kind) {
    case Kind::forward:
      return op.fused.only_statistics ? "statistics" : "forward";
    case Kind::recompute:
      return "recompute";
    case Kind::loss:
      return "loss";
    case Kind::loss_gradient:
      return "gradient of the loss";
    case Kind::gradient:
      if (op.gradient.of_parameters && op.gradient.of_inputs) return "gradient";
      return op.gradient.of_parameters ? "weight gradient" : "data gradient";
    case Kind::sum:
      return "sum of gradients";
    case Kind::start_gather:
      return "start of a gather";
    case Kind::await_gather:
      return "wait for a gather";
    case Kind::start_reduction:
    case Kind::start_tail:
      return "start of a reduction";
    case Kind::await_reduction:
    case Kind::await_tail:
      return "wait for a reduction";
    case Kind::start_replica_reduction:
      return "start of a reduction over replicas";
    case Kind::await_replica_reduction:
      return "wait for a reduction over replicas";
    case Kind::decide:
      return "decision on the update";
    case Kind::update:
    case Kind::update_all:
      return "update";
  }
  return "";
}

std::string subject_of(const StepOp& op, const Graph& graph) {
  using Kind = StepOp::Kind;
  if (op.kind == Kind::start_tail || op.kind == Kind::await_tail) return "tail";
  if (op.kind == Kind::decide || op.kind == Kind::update_all) return "all";
  if (op.is_collective() || op.kind == Kind::update) return fmt::format("unit {}", op.unit);
  std::string text = node_name(graph, op.node);
  for (const auto& fused : {op.fused.added_norm, op.fused.sum, op.fused.relu, op.fused.pool}) {
    if (fused) text += " + " + node_name(graph, *fused);
  }
  return text;
}

std::vector<std::string> value_names(const StepGraph& steps, const Graph& graph) {
  std::map<std::pair<StepValue::Kind, ValueId>, int> seen;
  std::vector<std::string> names;
  names.reserve(steps.values.size());
  for (const StepValue& value : steps.values) {
    const char* const prefix = value.kind == StepValue::Kind::saved      ? "saved "
                               : value.kind == StepValue::Kind::gradient ? "d "
                                                                         : "";
    std::string name = prefix + node_name(graph, value.of);
    const int count = ++seen[{value.kind, value.of}];
    if (count > 1) name += fmt::format(" ({})", count);
    names.push_back(std::move(name));
  }
  return names;
}

std::string step_text(const StepGraph& steps, const Graph& graph) {
  const std::vector<std::string> names = value_names(steps, graph);
  const auto list = [&](const std::vector<StepValueId>& ids) {
    std::vector<std::string_view> found;
    found.reserve(ids.size());
    for (const StepValueId id : ids) found.emplace_back(names[static_cast<std::size_t>(id)]);
    return fmt::format("{}", fmt::join(found, ", "));
  };
  std::string text;
  for (const StepOp& op : steps.ops) {
    text += fmt::format("{} {}: {} -> {}\n", kind_name(op), subject_of(op, graph), list(op.reads()),
                        list(op.writes()));
  }
  return text;
}

}  // namespace lockstep
