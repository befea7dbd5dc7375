#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/precision.hpp"

namespace lockstep {

// Converts between the data types of engines and those of communicators.

[[nodiscard]] constexpr Precision precision_of(ElementType type) noexcept {
  return type == ElementType::f16    ? Precision::fp16
         : type == ElementType::bf16 ? Precision::bf16
                                     : Precision::fp32;
}

[[nodiscard]] constexpr ElementType element_of(Precision precision) noexcept {
  return precision == Precision::fp16   ? ElementType::f16
         : precision == Precision::bf16 ? ElementType::bf16
                                        : ElementType::f32;
}

}  // namespace lockstep
