#pragma once

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/vector_types.hpp"

#include <bit>
#include <cstdint>

namespace lockstep::cpu {

/// Rounds as Bfloat16 does; the result is still in fp32.
template <typename Bits, typename Float>
LOCKSTEP_INLINED inline Float rounded_to_bf16(const Float& value) {
  const Bits wide = std::bit_cast<Bits>(value);
  const Bits nearest = wide + 0x7FFFU + ((wide >> 16) & 1U);
  const Bits quiet = wide | 0x400000U;
  return std::bit_cast<Float>((value != value ? quiet : nearest) & 0xFFFF0000U);
}

/// Loads `width` adjacent values as fp32.
template <int width>
LOCKSTEP_INLINED inline typename VectorTypes<width>::Float load_floats(const float* from) {
  return load_bytes<typename VectorTypes<width>::Float>(from);
}
template <int width>
LOCKSTEP_INLINED inline typename VectorTypes<width>::Float load_floats(const Bfloat16* from) {
  using Types = VectorTypes<width>;
  const auto halves = load_bytes<typename Types::Halves>(from);
  return std::bit_cast<typename Types::Float>(__builtin_convertvector(halves, typename Types::Bits)
                                              << 16);
}
template <int width>
LOCKSTEP_INLINED inline void store_floats(const typename VectorTypes<width>::Float& from,
                                          float* to) {
  store_bytes(from, to);
}
/// Rounds.
template <int width>
LOCKSTEP_INLINED inline void store_floats(const typename VectorTypes<width>::Float& from,
                                          Bfloat16* to) {
  using Bits = typename VectorTypes<width>::Bits;
  const auto words = std::bit_cast<Bits>(rounded_to_bf16<Bits>(from)) >> 16;
  store_bytes(__builtin_convertvector(words, typename VectorTypes<width>::Halves), &to->bits);
}

}  // namespace lockstep::cpu
