#pragma once

#include "program_builder.hpp"

#include <memory>

namespace lockstep::cuda {

/// One node on its way into a program: what forward learns that backward needs lives here until the
/// program is compiled.
class Lowering {
 public:
  virtual ~Lowering() = default;
  virtual void forward(ProgramBuilder& builder) = 0;
  virtual void backward(ProgramBuilder& builder) = 0;
};

/// What each op's lowering is made from.
struct LoweringContext {
  const EngineState& state;
  ValueId id;
  [[nodiscard]] const Node& node(ValueId value) const {
    return state.graph.nodes()[static_cast<std::size_t>(value)];
  }
  [[nodiscard]] const Node& node() const { return node(id); }
};

// One overload per op, each in the file of its name; a missing one does not compile. Null: another
// node computes it.
[[nodiscard]] std::unique_ptr<Lowering> lower(const Conv2d& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Linear& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Relu& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Add& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const MaxPool& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const GlobalAvgPool& op,
                                              const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Flatten& op, const LoweringContext& context);

/// The gradient of a ReLU's input, given its output and its output's gradient; the tensor is read
/// by nothing else.
[[nodiscard]] Tensor emit_relu_backward(ProgramBuilder& builder, ValueId relu);

}  // namespace lockstep::cuda
