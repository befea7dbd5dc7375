#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>

namespace lockstep {

/// Size of one element in bytes.
[[nodiscard]] inline std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
    case ElementType::i32:
      return 4;
    case ElementType::f64:
    case ElementType::i64:
    case ElementType::u64:
      return 8;
    case ElementType::bf16:
    case ElementType::f16:
      return 2;
    case ElementType::u8:
      return 1;
  }
  return 1;
}

}  // namespace lockstep
