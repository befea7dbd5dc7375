#pragma once

#include "lockstep/graph/graph.hpp"

#include <optional>
#include <vector>

namespace lockstep {

/// Properties of the whole graph that lowering needs. Pure.
struct GraphAnalysis {
  std::vector<int> consumers;        ///< by value
  std::vector<bool> needs_gradient;  ///< by value: whether a trained parameter precedes it
  std::vector<std::optional<ValueId>> sum_of;   ///< by node: the add fused into this norm
  std::vector<std::optional<ValueId>> relu_of;  ///< by node: the ReLU fused into this norm or add
  /// By node: if an addition fused into another norm is the only consumer of this norm's value,
  /// that other norm.
  std::vector<std::optional<ValueId>> added_to;
  /// By node: the max pool that a norm computes with its own ReLU. Empty unless an engine sets it.
  std::vector<std::optional<ValueId>> pooled_by;
  std::vector<bool> fused_away;    ///< by node: computed by an earlier one
  std::vector<bool> overwritable;  ///< by value: its only consumer may compute in place
  std::vector<bool> overwritable_in_inference;
  std::vector<bool> overwritable_in_backward;  ///< by value: its only consumer's backward may
  std::vector<bool> read_in_backward;          ///< by value: a consumer's backward reads its input
  /// By value: a norm or an add can recompute it from values that are kept, so backward may
  /// recompute it instead of keeping it.
  std::vector<bool> recomputable;
  std::vector<ParameterId> ready;  ///< order in which backward finishes gradients

  /// The value that a node writes, including the ops fused into it.
  [[nodiscard]] ValueId output_of(ValueId node) const {
    return relu_of[at(sum(node))].value_or(sum(node));
  }
  /// Whether a ReLU is fused into a node, after the node's fused addition if it has one.
  [[nodiscard]] bool has_relu(ValueId node) const { return relu_of[at(sum(node))].has_value(); }
  /// The other operand of the addition that is fused into a norm.
  [[nodiscard]] std::optional<ValueId> addend_of(const Graph& graph, ValueId norm) const;

 private:
  [[nodiscard]] static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  [[nodiscard]] ValueId sum(ValueId node) const { return sum_of[at(node)].value_or(node); }
};

/// Error(usage) if a value has no consumer.
[[nodiscard]] GraphAnalysis analyse(const Graph& graph);

/// The values that an op reads.
[[nodiscard]] std::vector<ValueId> inputs_of(const Op& op);

}  // namespace lockstep
