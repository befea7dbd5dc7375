#pragma once

#include "../lowering/lowering.hpp"
#include "program_builder.hpp"

#include <memory>

namespace lockstep::gpu {

using Lowering = lockstep::Lowering<ProgramBuilder>;
using LoweringContext = lockstep::LoweringContext<ProgramBuilder>;

// One overload per op, each in the op's own file; a missing one is a compile error.
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

}  // namespace lockstep::gpu
