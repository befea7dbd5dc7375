#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// IEEE 754 half precision: 5 bits of exponent, 11 of significand, subnormals down to 2^-24.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  /// Rounds to nearest, ties to even; 65520 and above becomes infinity; NaN stays NaN. Branch-free,
  /// so loops vectorise.
  explicit Float16(float value) noexcept {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (wide >> 16) & 0x8000U;
    const std::uint32_t magnitude = wide & 0x7FFFFFFFU;
    // The exponent bias is 127 in a float and 15 here.
    const std::uint32_t normal =
        (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
    // Floats just above 0.5 are spaced by 2^-24, like half-precision subnormals.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
        std::bit_cast<std::uint32_t>(0.5F);
    std::uint32_t result = magnitude < (113U << 23) ? subnormal : normal;
    result = magnitude >= 0x477FF000U ? 0x7C00U : result;  // 65520 and above
    result = magnitude > 0x7F800000U ? 0x7E00U : result;
    bits = static_cast<std::uint16_t>(sign | result);
  }
  explicit operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t magnitude = bits & 0x7FFFU;
    const std::uint32_t normal = (magnitude << 13) + (112U << 23);
    const std::uint32_t special = (magnitude << 13) + (224U << 23);
    const auto subnormal = std::bit_cast<std::uint32_t>(
        static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
    std::uint32_t result = magnitude < 0x0400U ? subnormal : normal;
    result = magnitude >= 0x7C00U ? special : result;
    return std::bit_cast<float>(sign | result);
  }
  friend bool operator==(const Float16&, const Float16&) = default;  ///< compares bits
};

}  // namespace lockstep
