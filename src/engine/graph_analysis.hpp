#pragma once

#include "lockstep/graph/graph.hpp"

#include <optional>
#include <vector>

namespace lockstep {

/// What lowering must know of a graph as a whole. Pure.
struct GraphAnalysis {
  std::vector<int> consumers;                   ///< by value
  std::vector<bool> needs_gradient;             ///< by value: a parameter lies before it
  std::vector<std::optional<ValueId>> sum_of;   ///< by node: the add fused into this norm
  std::vector<std::optional<ValueId>> relu_of;  ///< by node: the ReLU fused into this norm or add
  /// By node: the norm that computes the addition in which alone this norm's values go.
  std::vector<std::optional<ValueId>> added_to;
  std::vector<bool> fused_away;    ///< by node: an add or ReLU that an input computes
  std::vector<bool> overwritable;  ///< by value: its one consumer may compute in place
  std::vector<bool> overwritable_in_inference;
  std::vector<bool> overwritable_in_backward;  ///< by value: by its one consumer's backward
  std::vector<bool> read_in_backward;          ///< by value: by a consumer, as its input
  /// By value: a norm or an add gives it back from what is kept, so that backward may compute it
  /// again rather than have it wait.
  std::vector<bool> recomputable;
  std::vector<ParameterId> ready;  ///< order in which backward finishes gradients

  /// The value a node's output goes to: that of what is fused into it.
  [[nodiscard]] ValueId output_of(ValueId node) const {
    return relu_of[at(sum(node))].value_or(sum(node));
  }
  /// Whether a ReLU is fused into a node, behind its addition where there is one.
  [[nodiscard]] bool has_relu(ValueId node) const { return relu_of[at(sum(node))].has_value(); }
  /// The value that is added to a norm's in the addition that is fused into it.
  [[nodiscard]] std::optional<ValueId> addend_of(const Graph& graph, ValueId norm) const;

 private:
  [[nodiscard]] static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  [[nodiscard]] ValueId sum(ValueId node) const { return sum_of[at(node)].value_or(node); }
};

/// Error(usage) where a value is used by nothing.
[[nodiscard]] GraphAnalysis analyse(const Graph& graph);

/// Values an op reads.
[[nodiscard]] std::vector<ValueId> inputs_of(const Op& op);

}  // namespace lockstep
