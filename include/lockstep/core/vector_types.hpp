#pragma once

#include "lockstep/core/vectors.hpp"

#include <cstdint>
#include <cstring>

namespace lockstep {

/// The compiler's vector types, which it maps to as many processor vectors as needed.
template <int lanes>
struct VectorTypes;
template <>
struct VectorTypes<16> {
  using Float = float __attribute__((vector_size(64)));
  using Bits = std::uint32_t __attribute__((vector_size(64)));
  using Ints = std::int32_t __attribute__((vector_size(64)));
  using Halves = std::uint16_t __attribute__((vector_size(32)));
  using Bytes = std::uint8_t __attribute__((vector_size(16)));
};
template <>
struct VectorTypes<8> {
  using Float = float __attribute__((vector_size(32)));
  using Bits = std::uint32_t __attribute__((vector_size(32)));
  using Ints = std::int32_t __attribute__((vector_size(32)));
  using Halves = std::uint16_t __attribute__((vector_size(16)));
  using Bytes = std::uint8_t __attribute__((vector_size(8)));
};
template <>
struct VectorTypes<4> {
  using Float = float __attribute__((vector_size(16)));
  using Bits = std::uint32_t __attribute__((vector_size(16)));
  using Ints = std::int32_t __attribute__((vector_size(16)));
  using Halves = std::uint16_t __attribute__((vector_size(8)));
  using Bytes = std::uint8_t __attribute__((vector_size(4)));
};
template <>
struct VectorTypes<1> {
  using Float = float __attribute__((vector_size(4)));
  using Bits = std::uint32_t __attribute__((vector_size(4)));
  using Bytes = std::uint8_t __attribute__((vector_size(1)));
};

template <typename Vector, typename T>
LOCKSTEP_INLINED inline Vector load_bytes(const T* from) {
  Vector to;
  std::memcpy(&to, from, sizeof(Vector));
  return to;
}
template <typename Vector, typename T>
LOCKSTEP_INLINED inline void store_bytes(const Vector& from, T* to) {
  std::memcpy(to, &from, sizeof(Vector));
}

}  // namespace lockstep
