#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/nccl_api.hpp"

namespace lockstep {

[[nodiscard]] inline NcclType nccl_type(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
      return NcclType::f32;
    case ElementType::f64:
      return NcclType::f64;
    case ElementType::i32:
      return NcclType::i32;
    case ElementType::i64:
      return NcclType::i64;
    case ElementType::u8:
      return NcclType::u8;
    case ElementType::u64:
      return NcclType::u64;
    case ElementType::bf16:
      return NcclType::bf16;
    case ElementType::f16:
      return NcclType::f16;
  }
  return NcclType::u8;
}
[[nodiscard]] inline NcclOp nccl_op(ReduceOp op) noexcept {
  return op == ReduceOp::sum ? NcclOp::sum : op == ReduceOp::min ? NcclOp::min : NcclOp::max;
}

}  // namespace lockstep
