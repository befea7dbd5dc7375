#pragma once

#include "lockstep/core/vectors.hpp"

#include <cstdint>
#include <cstring>

namespace lockstep {

/// The compiler's vector types, which it maps to as many processor vectors as needed.
template <int lanes>
struct VectorTypes {
  using Float __attribute__((vector_size(lanes * sizeof(float)))) = float;
  using Bits __attribute__((vector_size(lanes * sizeof(std::uint32_t)))) = std::uint32_t;
  using Ints __attribute__((vector_size(lanes * sizeof(std::int32_t)))) = std::int32_t;
  using Halves __attribute__((vector_size(lanes * sizeof(std::uint16_t)))) = std::uint16_t;
  using Bytes __attribute__((vector_size(lanes))) = std::uint8_t;
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
