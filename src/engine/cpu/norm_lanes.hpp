#pragma once

#include "lockstep/core/bfloat16.hpp"
#include "vector_types.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lockstep::cpu {

/// Adjacent lanes of a row, as one or two vectors. A lane is a channel, so sums per lane do not
/// depend on the number of lanes.
template <typename T, int count>
struct Lanes;

template <int count>
struct Lanes<float, count> : VectorTypes<count> {
  static constexpr int lanes = count;
  static constexpr int vectors = 1;
  using typename VectorTypes<count>::Float;
  using typename VectorTypes<count>::Bits;
  using typename VectorTypes<count>::Bytes;
  using Floats = std::array<Float, 1>;

  LOCKSTEP_INLINED static Floats load(const float* from) { return {load_bytes<Float>(from)}; }
  LOCKSTEP_INLINED static void store(Floats& from, float* to) { store_bytes(from[0], to); }
  LOCKSTEP_INLINED static Floats load_channels(const float* from) { return load(from); }
  LOCKSTEP_INLINED static void add_channels(const Floats& values, float* to) {
    store_bytes(load_bytes<Float>(to) + values[0], to);
  }
};

/// Two adjacent values are the halves of a word. One vector holds the even lanes and one the odd
/// lanes, so splitting and joining words moves no value to another lane.
template <int count>
struct Lanes<Bfloat16, count> : VectorTypes<count / 2> {
  static constexpr int pairs = count / 2;
  static constexpr int lanes = count;
  static constexpr int vectors = 2;
  using typename VectorTypes<count / 2>::Float;
  using typename VectorTypes<count / 2>::Bits;
  using typename VectorTypes<count / 2>::Bytes;
  using Floats = std::array<Float, 2>;
  static constexpr std::uint32_t upper = 0xFFFF0000U;

  LOCKSTEP_INLINED static Floats load(const Bfloat16* from) {
    const Bits words = load_bytes<Bits>(from);
    return {std::bit_cast<Float>(words << 16), std::bit_cast<Float>(words & upper)};
  }
  /// Leaves the rounded values in `from`.
  LOCKSTEP_INLINED static void store(Floats& from, Bfloat16* to) {
    for (Float& values : from) values = rounded_to_bf16<Bits>(values);
    const Bits words = (std::bit_cast<Bits>(from[0]) >> 16) | std::bit_cast<Bits>(from[1]);
    store_bytes(words, &to->bits);
  }
  LOCKSTEP_INLINED static Floats load_channels(const float* from) {
    const Float first = load_bytes<Float>(from);
    const Float second = load_bytes<Float>(from + pairs);
    return {evens(first, second), odds(first, second)};
  }
  LOCKSTEP_INLINED static void add_channels(const Floats& values, float* to) {
    store_bytes(load_bytes<Float>(to) + merged<0>(values[0], values[1]), to);
    store_bytes(load_bytes<Float>(to + pairs) + merged<1>(values[0], values[1]), to + pairs);
  }

 private:
  using Places = std::make_integer_sequence<int, pairs>;
  LOCKSTEP_INLINED static Float evens(const Float& a, const Float& b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) LOCKSTEP_INLINED {
      return __builtin_shufflevector(a, b, (2 * i)...);
    }
    (Places());
  }
  LOCKSTEP_INLINED static Float odds(const Float& a, const Float& b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) LOCKSTEP_INLINED {
      return __builtin_shufflevector(a, b, (2 * i + 1)...);
    }
    (Places());
  }
  /// Interleaves the even and odd lanes: the first or the second half of the result.
  template <int half>
  LOCKSTEP_INLINED static Float merged(const Float& a, const Float& b) {
    return [&]<int... i>(std::integer_sequence<int, i...>) LOCKSTEP_INLINED {
      return __builtin_shufflevector(a, b, (half * pairs / 2 + i / 2 + i % 2 * pairs)...);
    }
    (Places());
  }
};

/// A single value without a partner in its row.
template <>
struct Lanes<Bfloat16, 1> : VectorTypes<1> {
  static constexpr int lanes = 1;
  static constexpr int vectors = 1;
  using Floats = std::array<Float, 1>;

  LOCKSTEP_INLINED static Floats load(const Bfloat16* from) {
    return {Float{static_cast<float>(*from)}};
  }
  LOCKSTEP_INLINED static void store(Floats& from, Bfloat16* to) {
    *to = Bfloat16(from[0][0]);
    from = load(to);
  }
  LOCKSTEP_INLINED static Floats load_channels(const float* from) { return {Float{*from}}; }
  LOCKSTEP_INLINED static void add_channels(const Floats& values, float* to) {
    *to += values[0][0];
  }
};

/// Mask bits of some lanes of up to eight rows: one byte per lane, grouped by vector.
template <typename V>
struct MaskOf {
  using Bits = typename V::Bits;
  std::array<Bits, V::vectors> bits{};

  LOCKSTEP_INLINED void load(const std::uint8_t* from) {
    for (Bits& some : bits) {
      some = __builtin_convertvector(load_bytes<typename V::Bytes>(from), Bits);
      from += sizeof(typename V::Bytes);
    }
  }
  LOCKSTEP_INLINED void store(std::uint8_t* to) const {
    for (const Bits& some : bits) {
      const auto bytes = __builtin_convertvector(some, typename V::Bytes);
      store_bytes(bytes, to);
      to += sizeof(bytes);
    }
  }
  LOCKSTEP_INLINED void set_where_positive(const typename V::Floats& values, int row) {
    for (int v = 0; v < V::vectors; ++v) {
      const typename V::Float nothing{};
      bits[v] |= std::bit_cast<Bits>(values[v] > nothing) & (1U << row);
    }
  }
  /// Zeroes the lanes whose bit for the row is not set.
  LOCKSTEP_INLINED void keep(typename V::Floats& values, int row) const {
    for (int v = 0; v < V::vectors; ++v) {
      const typename V::Float nothing{};
      values[v] = (bits[v] & (1U << row)) != 0U ? values[v] : nothing;
    }
  }
};

}  // namespace lockstep::cpu
