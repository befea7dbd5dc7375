#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// The upper half of a float: its sign and exponent, 8 bits of significand.
struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  /// To the nearest, ties to even; NaN stays NaN. Without branches, so that loops vectorise.
  explicit Bfloat16(float value) noexcept {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (wide + 0x7FFFU + ((wide >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (wide >> 16) | 0x40U;
    bits = static_cast<std::uint16_t>(value != value ? quiet : rounded);
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  friend bool operator==(const Bfloat16&, const Bfloat16&) = default;  ///< of bits
};

}  // namespace lockstep
