#pragma once

#include "lockstep/graph/graph.hpp"

#include <optional>
#include <vector>

namespace lockstep {

/// What lowering must know of a graph as a whole. Pure.
struct GraphAnalysis {
  std::vector<int> consumers;                   ///< by value
  std::vector<bool> needs_gradient;             ///< by value: a parameter lies before it
  std::vector<std::optional<ValueId>> relu_of;  ///< by node: the ReLU fused into this norm or add
  std::vector<bool> fused_away;                 ///< by node: a ReLU that its input computes
  std::vector<bool> overwritable;               ///< by value: its one consumer may compute in place
  std::vector<bool> overwritable_in_inference;
  /// By value: a norm or an add gives it back from what is kept, so that backward may compute it
  /// again rather than have it wait.
  std::vector<bool> recomputable;
  std::vector<ParameterId> ready;  ///< order in which backward finishes gradients

  /// The value a node's output goes to: its ReLU's where one is fused.
  [[nodiscard]] ValueId output_of(ValueId node) const {
    return relu_of[static_cast<std::size_t>(node)].value_or(node);
  }
};

/// Where backward finds the mask of a ReLU that is fused into a norm: in a workspace of the norm's
/// own, or in the output, which then nothing may overwrite.
enum class NormMask { workspace, output };

/// Error(usage) where a value is used by nothing.
[[nodiscard]] GraphAnalysis analyse(const Graph& graph, NormMask norm_mask);

/// Values an op reads.
[[nodiscard]] std::vector<ValueId> inputs_of(const Op& op);

}  // namespace lockstep
