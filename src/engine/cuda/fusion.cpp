#include "fusion.hpp"

#include <array>

namespace lockstep::cuda {
namespace {

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

Fusion plan_fusion(const Graph& graph, const GraphAnalysis& analysis) {
  const std::size_t count = graph.nodes().size();
  Fusion fusion{.norm_of = std::vector<std::optional<ValueId>>(count),
                .absorbed = std::vector<bool>(count, false),
                .ready = {}};
  for (std::size_t id = 0; id < count; ++id) {
    const auto* add = std::get_if<Add>(&graph.nodes()[id].op);
    if (add == nullptr || add->left == add->right) continue;
    for (const ValueId operand : std::array{add->left, add->right}) {
      if (!std::holds_alternative<BatchNorm>(graph.nodes()[at(operand)].op)) continue;
      if (analysis.consumers[at(operand)] != 1) continue;
      fusion.norm_of[id] = operand;
      fusion.absorbed[at(operand)] = true;
      break;
    }
  }
  const auto add_parameters = [&](std::size_t id) {
    const auto& parameters = graph.nodes()[id].parameters;
    fusion.ready.insert(fusion.ready.end(), parameters.begin(), parameters.end());
  };
  for (std::size_t id = count; id-- > 0;) {
    if (fusion.norm_of[id]) add_parameters(at(*fusion.norm_of[id]));
    if (!fusion.absorbed[id]) add_parameters(id);
  }
  return fusion;
}

}  // namespace lockstep::cuda
