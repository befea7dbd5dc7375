#pragma once

#include "../lowering/op_lowering.hpp"
#include "program_builder.hpp"

namespace lockstep::gpu {

using Lowering = lockstep::Lowering<ProgramBuilder>;
using LoweringContext = lockstep::LoweringContext<ProgramBuilder>;

}  // namespace lockstep::gpu
