#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// The upper half of a float: sign, exponent and 8 bits of significand.
struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN. Branch-free, so loops vectorise.
  explicit Bfloat16(float value) noexcept {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (wide + 0x7FFFU + ((wide >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (wide >> 16) | 0x40U;
    bits = static_cast<std::uint16_t>(value != value ? quiet : rounded);
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  friend bool operator==(const Bfloat16&, const Bfloat16&) = default;  ///< compares bits
};

}  // namespace lockstep
