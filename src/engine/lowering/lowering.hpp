#pragma once

#include "../graph_analysis.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <memory>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {

/// Lowers one node. Keeps what backward needs from forward (primitive descriptors, workspaces)
/// until the program is compiled.
template <typename Builder>
class Lowering {
 public:
  virtual ~Lowering() = default;
  virtual void forward(Builder& builder) = 0;
  virtual void backward(Builder& builder) = 0;
};

/// Inputs of an op's lowering.
template <typename Builder>
struct LoweringContext {
  const Graph& graph;
  const GraphAnalysis& analysis;
  ValueId id;
  [[nodiscard]] const Node& node(ValueId value) const {
    return graph.nodes()[static_cast<std::size_t>(value)];
  }
  [[nodiscard]] const Node& node() const { return node(id); }
  [[nodiscard]] bool fused_away() const {
    return analysis.fused_away[static_cast<std::size_t>(id)];
  }
};

/// Lowers a graph's nodes in order. An engine has one overload of lower(op, context) per op; it
/// returns null if another node computes the op.
template <typename Builder>
class GraphLowering final {
 public:
  GraphLowering(const Graph& graph, const GraphAnalysis& analysis)
      : graph_(graph), analysis_(analysis) {}

  void forward(Builder& builder) {
    for (const Node& node : graph_.nodes()) {
      lowered_.push_back(lower_node(node));
      if (lowered_.back()) lowered_.back()->forward(builder);
    }
  }
  /// Skips nodes before which no parameter has a gradient.
  void backward(Builder& builder) {
    for (std::size_t id = lowered_.size(); id-- > 0;) {
      if (!lowered_[id]) continue;
      if (builder.needs_gradient(analysis_.output_of(static_cast<ValueId>(id)))) {
        lowered_[id]->backward(builder);
      } else {
        for (const ParameterId parameter : graph_.nodes()[id].parameters) builder.skip(parameter);
      }
    }
  }

 private:
  [[nodiscard]] std::unique_ptr<Lowering<Builder>> lower_node(const Node& node) const {
    const LoweringContext<Builder> context{
        .graph = graph_, .analysis = analysis_, .id = static_cast<ValueId>(lowered_.size())};
    return std::visit(
        [&](const auto& op) -> std::unique_ptr<Lowering<Builder>> {
          using T = std::decay_t<decltype(op)>;
          // The program itself loads the images and computes the loss.
          if constexpr (std::is_same_v<T, Input> || is_loss_type<T>) {
            return nullptr;
          } else {
            return lower(op, context);
          }
        },
        node.op);
  }

  const Graph& graph_;
  const GraphAnalysis& analysis_;
  std::vector<std::unique_ptr<Lowering<Builder>>> lowered_;
};

}  // namespace lockstep
