#pragma once

#include "lockstep/step/step_graph.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {

/// Lowers the ops of one node. Keeps what backward needs from forward (primitive descriptors,
/// copies in other formats) until the program is compiled.
template <typename Builder>
class Lowering {
 public:
  virtual ~Lowering() = default;
  /// Of kind `forward`, or `again` if the node's op is cheap.
  virtual void forward(Builder& builder, const StepOp& op) = 0;
  virtual void gradient(Builder& builder, const StepOp& op) = 0;
};

/// A node, as its op's lowering sees it.
template <typename Builder>
struct LoweringContext {
  const Graph& graph;
  ValueId id;
  [[nodiscard]] const Node& node(ValueId value) const {
    return graph.nodes()[static_cast<std::size_t>(value)];
  }
  [[nodiscard]] const Node& node() const { return node(id); }
};

/// Lowers a step's ops in order. An engine has one overload of lower(op, context) per op of the
/// network; a missing one is a compile error.
template <typename Builder>
class StepLowering final {
 public:
  /// What the program itself does: the loss and its gradient.
  struct Losses {
    std::function<void(const StepOp& op)> forward;
    std::function<void(const StepOp& op)> backward;
  };
  StepLowering(const Graph& graph, const StepGraph& steps)
      : graph_(graph), steps_(steps), lowered_(graph.nodes().size()) {}

  void run(Builder& builder, const Losses& losses) {
    using Kind = StepOp::Kind;
    for (std::size_t i = 0; i < steps_.ops.size(); ++i) {
      const StepOp& op = steps_.ops[i];
      if (op.kind == Kind::again) {
        builder.defer(i);
        continue;
      }
      builder.begin(i);
      switch (op.kind) {
        case Kind::forward:
          of(op.node).forward(builder, op);
          break;
        case Kind::again:
          break;
        case Kind::loss:
          losses.forward(op);
          break;
        case Kind::loss_gradient:
          losses.backward(op);
          break;
        case Kind::gradient:
          of(op.node).gradient(builder, op);
          break;
        case Kind::sum:
          builder.set_value(*op.output, builder.sum(op.inputs[0], op.inputs[1]));
          break;
        case Kind::start_gather:
          builder.start_gather(op.unit);
          break;
        case Kind::await_gather:
          builder.await_gather(op.unit);
          break;
        case Kind::start_reduction:
          builder.start_reduction(op.unit);
          break;
        case Kind::await_reduction:
          builder.await_reduction(op.unit);
          break;
      }
      for (const ParameterId id : op.completes) builder.complete(id);
      builder.end();
    }
  }
  [[nodiscard]] Lowering<Builder>& of(ValueId node) {
    auto& lowered = lowered_[static_cast<std::size_t>(node)];
    if (!lowered) {
      const LoweringContext<Builder> context{.graph = graph_, .id = node};
      lowered = std::visit(
          [&](const auto& op) -> std::unique_ptr<Lowering<Builder>> {
            if constexpr (LayerOp<std::decay_t<decltype(op)>>) return lower(op, context);
            return nullptr;
          },
          context.node().op);
    }
    return *lowered;
  }

 private:
  const Graph& graph_;
  const StepGraph& steps_;
  std::vector<std::unique_ptr<Lowering<Builder>>> lowered_;  ///< by node
};

}  // namespace lockstep
