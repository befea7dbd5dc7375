#pragma once

#include "../lowering/lowering.hpp"
#include "program_builder.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::cpu {

using Lowering = lockstep::Lowering<ProgramBuilder>;
using LoweringContext = lockstep::LoweringContext<ProgramBuilder>;

// One overload per op, each in the op's own file; a missing one is a compile error.
[[nodiscard]] std::unique_ptr<Lowering> lower(const Conv2d& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Relu& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Add& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const MaxPool& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const AvgPool& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const GlobalAvgPool& op,
                                              const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Flatten& op, const LoweringContext& context);
[[nodiscard]] std::unique_ptr<Lowering> lower(const Linear& op, const LoweringContext& context);

/// The format of a weight in the arenas: that of its gradient primitive at a nominal batch size, so
/// that all programs of an engine agree.
struct WeightFormatOptions {
  const dnnl::engine& engine;
  DataType activations;
};
[[nodiscard]] Desc weight_format(const Conv2d& op, const LoweringContext& context,
                                 const WeightFormatOptions& options);
[[nodiscard]] Desc weight_format(const Linear& op, const LoweringContext& context,
                                 const WeightFormatOptions& options);
inline constexpr std::int64_t nominal_batch = 32;

}  // namespace lockstep::cpu
