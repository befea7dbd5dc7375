#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cassert>
#include <cstddef>

namespace lockstep {

/// Whether add_values() and with_summed_type() know the type.
[[nodiscard]] inline bool is_summed_type(ElementType type) noexcept {
  return type == ElementType::f32 || type == ElementType::bf16 || type == ElementType::f16;
}

/// Calls `visit(T{})`, where T is the C++ type of `type`, one that is summed.
template <typename Visitor>
void with_summed_type(ElementType type, Visitor&& visit) {
  if (type == ElementType::f32) return visit(float{});
  if (type == ElementType::bf16) return visit(Bfloat16{});
  assert(type == ElementType::f16);
  visit(Float16{});
}

/// sum[i] = one[i] + other[i], rounded once. `sum` may be `one`; else they do not overlap.
inline void add_values(ElementType type, std::byte* sum, const std::byte* one,
                       const std::byte* other, std::size_t count) {
  with_summed_type(type, [&]<typename T>(T) {
    const T* const __restrict b = reinterpret_cast<const T*>(other);
    T* const __restrict result = reinterpret_cast<T*>(sum);
    if (sum == one) {
      for (std::size_t i = 0; i < count; ++i) result[i] = T(float{result[i]} + float{b[i]});
      return;
    }
    const T* const __restrict a = reinterpret_cast<const T*>(one);
    for (std::size_t i = 0; i < count; ++i) result[i] = T(float{a[i]} + float{b[i]});
  });
}

}  // namespace lockstep
