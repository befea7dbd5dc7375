#pragma once

#include "../graph_analysis.hpp"

#include <optional>
#include <vector>

namespace lockstep::cuda {

/// Which batch norms take in the addition behind them, with its ReLU: one pass over memory instead
/// of two. Pure.
struct Fusion {
  std::vector<std::optional<ValueId>> norm_of;  ///< by node: the norm that computes this add
  std::vector<bool> absorbed;                   ///< by node: a norm that is computed at its add
  std::vector<ParameterId> ready;               ///< order in which backward finishes gradients
};

[[nodiscard]] Fusion plan_fusion(const Graph& graph, const GraphAnalysis& analysis);

}  // namespace lockstep::cuda
