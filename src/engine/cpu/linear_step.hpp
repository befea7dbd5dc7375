#pragma once

#include "program_builder.hpp"

#include <string>

namespace lockstep::cpu {

/// fp32 matrices; `weight` is row-major (F, C): oneDNN's format `ba`.
struct LinearOperands {
  Tensor source;
  Tensor weight;
  Tensor bias;
  Tensor target;
};
/// target (N, C) = source (N, F) * weight (F, C) + bias (C). The bits of a row do not depend on the
/// other rows. (Those of oneDNN's inner product do, without AVX-512.)
void emit_linear(ProgramBuilder& builder, const std::string& name, const LinearOperands& operands);

}  // namespace lockstep::cpu
