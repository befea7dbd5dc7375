#pragma once

#include "../lowering/lowering.hpp"
#include "program_builder.hpp"

#include <memory>

namespace lockstep::gpu {

using Lowering = lockstep::Lowering<ProgramBuilder>;
using LoweringContext = lockstep::LoweringContext<ProgramBuilder>;

// One overload per op, each in the op's own file; a missing one is a compile error. Null: another
// node computes the op.
[[nodiscard]] std::unique_ptr<Lowering> lower(const Conv2d& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Linear& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Relu& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Add& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const MaxPool& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const AvgPool& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const GlobalAvgPool& op,
                                              const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Flatten& op, const LoweringContext& context);

/// The gradient of a ReLU's input, given its output and its output's gradient. The tensor has no
/// other reader.
[[nodiscard]] Tensor emit_relu_backward(ProgramBuilder& builder, ValueId relu);

}  // namespace lockstep::gpu
