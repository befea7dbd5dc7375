#pragma once

#include "vector_io.hpp"

#include <cmath>

/// Positions of maxima in windows of 3x3 pixels, a byte each: 8 - (3 * row + column), so that the
/// first of equal maxima has the largest. All bytes are below 0x80.
namespace lockstep::gpu {

/// Of a maximum that is not above 0, which passes no gradient on.
inline constexpr int no_position = 0x7F;
/// No window has it.
inline constexpr int unmatched_position = 0x70;

/// The positions of `count` values.
template <int count>
struct alignas(count) Positions {
  std::uint32_t words[count / 4];
};

/// Values after a store as T and a load.
template <typename T>
LOCKSTEP_HOST_DEVICE Floats<packed_size<T>> rounded(const Floats<packed_size<T>>& values) {
  return unpack<T>(pack<T>(values));
}

/// The largest of the values that it is given, 0 if none is above 0 or NaN, and its position. NaN
/// counts as largest. Of equal values, the first given must have the largest position.
template <typename T>
struct Largest {
  static constexpr int count = packed_size<T>;
  // The bits of positive values are ordered like the values, those of NaN are the largest, and
  // those of negative values are negative. So the maximum of (bits, position) is that of a window.
  std::int32_t keys[count];

  LOCKSTEP_HOST_DEVICE void clear() {
    for (std::int32_t& key : keys) key = no_position;
  }
  LOCKSTEP_HOST_DEVICE void take(const Floats<count>& values, int position) {
    for (int i = 0; i < count; i += 2) {
      const std::uint32_t pair = pack_pair<T>(unsigned_nan(values[i]), unsigned_nan(values[i + 1]));
      const auto place = static_cast<std::uint32_t>(position);
      raise(keys[i], static_cast<std::int32_t>(pair << 16 | place));
      raise(keys[i + 1], static_cast<std::int32_t>((pair & 0xFFFF0000U) | place));
    }
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Packed128 values() const {
    Packed128 result;
    for (int i = 0; i < count; i += 2) {
      result.words[i / 2] = static_cast<std::uint32_t>(keys[i]) >> 16 |
                            (static_cast<std::uint32_t>(keys[i + 1]) & 0xFFFF0000U);
    }
    return result;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Positions<count> positions() const {
    constexpr std::int32_t infinity = std::is_same_v<T, Bfloat16> ? 0x7F800000 : 0x7C000000;
    Positions<count> result{};
    for (int i = 0; i < count; ++i) {
      const bool is_nan = keys[i] > (infinity | 0xFFFF);
      const std::uint32_t place =
          is_nan ? no_position : static_cast<std::uint32_t>(keys[i]) & 0xFFU;
      result.words[i / 4] |= place << i % 4 * 8;
    }
    return result;
  }

 private:
  LOCKSTEP_HOST_DEVICE static void raise(std::int32_t& key, std::int32_t other) {
    key = other > key ? other : key;
  }
  /// NaN has no sign after a device's conversion.
  LOCKSTEP_HOST_DEVICE static float unsigned_nan(float value) {
#ifndef __CUDA_ARCH__
    if (value != value) return std::abs(value);
#endif
    return value;
  }
};
template <>
struct Largest<float> {
  static constexpr int count = packed_size<float>;
  Floats<count> largest;
  int taken[count];

  LOCKSTEP_HOST_DEVICE void clear() {
    for (int i = 0; i < count; ++i) {
      largest[i] = 0;
      taken[i] = no_position;
    }
  }
  LOCKSTEP_HOST_DEVICE void take(const Floats<count>& values, int position) {
    for (int i = 0; i < count; ++i) {
      const bool is_nan = values[i] != values[i];
      const bool had_nan = largest[i] != largest[i];
      if (values[i] > largest[i] || (is_nan && !had_nan)) {
        largest[i] = values[i];
        taken[i] = is_nan ? no_position : position;
      }
    }
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Packed128 values() const { return pack<float>(largest); }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Positions<count> positions() const {
    Positions<count> result{};
    for (int i = 0; i < count; ++i) {
      result.words[0] |= static_cast<std::uint32_t>(taken[i]) << i * 8;
    }
    return result;
  }
};

/// For the values of T in word `word` of 16 bytes: all bits of a value are set if the high bit of
/// its byte in `matches` is.
template <typename T>
LOCKSTEP_HOST_DEVICE std::uint32_t spread_matches(std::uint32_t matches, int word) {
  constexpr int values = 4 / static_cast<int>(sizeof(T));
  const int first = word * values % 4;
#ifdef __CUDA_ARCH__
  // A selector's fourth bit repeats the sign of the byte that the others select.
  const std::uint32_t selector =
      (values == 2 ? 0x9988U : 0x8888U) + static_cast<std::uint32_t>(first) * 0x1111U;
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(result) : "r"(matches), "r"(selector));
  return result;
#else
  const auto bits = [&](int value) -> std::uint32_t {
    return (matches >> value * 8 & 0x80U) != 0 ? 0xFFFFFFFFU : 0U;
  };
  return values == 2 ? (bits(first) & 0xFFFFU) | (bits(first + 1) & 0xFFFF0000U) : bits(first);
#endif
}

/// sums += the values whose position is `position`.
template <typename T>
LOCKSTEP_HOST_DEVICE void add_matching(Floats<packed_size<T>>& sums, const Packed128& values,
                                       const Positions<packed_size<T>>& positions, int position) {
  constexpr int words_each = packed_size<T> / 4;  // of values, for one of positions
  const std::uint32_t expected = static_cast<std::uint32_t>(position) * 0x01010101U;
  Packed128 matching;
  for (int i = 0; i < 4; ++i) {
    // The high bit of a byte is set if it equals the expected one; no byte borrows from the next.
    const std::uint32_t matches = 0x80808080U - (positions.words[i * words_each / 4] ^ expected);
    matching.words[i] = values.words[i] & spread_matches<T>(matches, i);
  }
  const auto addends = unpack<T>(matching);
  for (int i = 0; i < packed_size<T>; ++i) sums[i] += addends[i];
}

}  // namespace lockstep::gpu
