#pragma once

#include "program_builder.hpp"

#include <memory>

namespace lockstep::cuda {

/// One node while it is lowered. Keeps what backward needs from forward until the program is
/// compiled.
class Lowering {
 public:
  virtual ~Lowering() = default;
  virtual void forward(ProgramBuilder& builder) = 0;
  virtual void backward(ProgramBuilder& builder) = 0;
};

/// Input of each op's lowering.
struct LoweringContext {
  const EngineState& state;
  ValueId id;
  [[nodiscard]] const Node& node(ValueId value) const {
    return state.graph.nodes()[static_cast<std::size_t>(value)];
  }
  [[nodiscard]] const Node& node() const { return node(id); }
};

// One overload per op, each in the op's own file; a missing one is a compile error. Null: another
// node computes the op.
[[nodiscard]] std::unique_ptr<Lowering> lower(const Conv2d& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Linear& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Relu& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Add& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const MaxPool& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const GlobalAvgPool& op,
                                              const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Flatten& op, const LoweringContext& context);

/// The gradient of a ReLU's input, given its output and its output's gradient. The tensor has no
/// other reader.
[[nodiscard]] Tensor emit_relu_backward(ProgramBuilder& builder, ValueId relu);

}  // namespace lockstep::cuda
