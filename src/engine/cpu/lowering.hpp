#pragma once

#include "../lowering/op_lowering.hpp"
#include "program_builder.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::cpu {

using Lowering = lockstep::Lowering<ProgramBuilder>;
using LoweringContext = lockstep::LoweringContext<ProgramBuilder>;

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
