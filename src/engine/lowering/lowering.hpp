#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/step/step_graph.hpp"
#include "lockstep/step/step_text.hpp"

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
  /// Of kind `forward` or `recompute`.
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

/// Makes the lowering of a node with an op of type T. The op's file in the engine's `ops`
/// instantiates it (op_lowering.hpp); without that the program does not link, and the linker names
/// the op.
template <typename Builder, typename T>
struct LowerOp {
  [[nodiscard]] static std::unique_ptr<Lowering<Builder>> make(
      const T& op, const LoweringContext<Builder>& context);
};

/// Lowers a step's ops in order.
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
    builder.set_lower_again([&](const StepOp& op) { lower_op(builder, losses, op); });
    for (std::size_t i = 0; i < steps_.ops.size(); ++i) {
      const StepOp& op = steps_.ops[i];
      if (op.kind == StepOp::Kind::recompute && steps_.recomputes_lazily) {
        builder.defer(i);
      } else if (op.is_collective()) {
        lower_op(builder, losses, op);
      } else {
        builder.begin(i);
        lower_op(builder, losses, op);
        for (const ParameterId id : op.completes) builder.complete(id);
        builder.end();
      }
    }
  }

 private:
  void lower_op(Builder& builder, const Losses& losses, const StepOp& op) {
    using Kind = StepOp::Kind;
    switch (op.kind) {
      case Kind::forward:
      case Kind::recompute:
        return of(op.node).forward(builder, op);
      case Kind::loss:
        return losses.forward(op);
      case Kind::loss_gradient:
        return losses.backward(op);
      case Kind::gradient:
        return of(op.node).gradient(builder, op);
      case Kind::sum:
        return builder.set_value(*op.output, builder.sum(op.inputs[0], op.inputs[1]));
      case Kind::start_gather:
        return builder.start_gather(op);
      case Kind::await_gather:
        return builder.await_gather(op);
      case Kind::start_reduction:
        return builder.start_reduction(op);
      case Kind::await_reduction:
        return builder.await_reduction(op);
      case Kind::start_replica_reduction:
        return builder.start_replica_reduction(op);
      case Kind::await_replica_reduction:
      case Kind::start_tail:
      case Kind::await_tail:
      case Kind::decide:
      case Kind::update:
      case Kind::update_all:
        fail(ExitStatus::internal, "cannot lower '{}' (only the end of a step runs it)",
             kind_name(op));
    }
  }
  [[nodiscard]] Lowering<Builder>& of(ValueId node) {
    auto& lowered = lowered_[static_cast<std::size_t>(node)];
    if (!lowered) {
      const LoweringContext<Builder> context{.graph = graph_, .id = node};
      lowered = std::visit(
          [&](const auto& op) -> std::unique_ptr<Lowering<Builder>> {
            using T = std::decay_t<decltype(op)>;
            if constexpr (LayerOp<T>) return LowerOp<Builder, T>::make(op, context);
            return nullptr;
          },
          context.node().op);
    }
    return *lowered;
  }

  const Graph& graph_;
  const StepGraph& steps_;
  std::vector<std::unique_ptr<Lowering<Builder>>> lowered_;  ///< by node
};

}  // namespace lockstep
