#pragma once

#include "lockstep/core/precision.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

/// Storage type of values on the device.
enum class DataType { f32, bf16, f16 };

[[nodiscard]] constexpr std::size_t size_of(DataType type) noexcept {
  return type == DataType::f32 ? 4 : 2;
}

[[nodiscard]] constexpr DataType storage_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
      break;
    case Precision::bf16:
      return DataType::bf16;
    case Precision::fp16:
      return DataType::f16;
  }
  return DataType::f32;
}

/// Channels of a pixel as stored: a multiple of 8, so that a pixel is read 16 bytes at a time and
/// has whole bytes of a mask. The padding is zero.
[[nodiscard]] constexpr std::int64_t padded_channels(std::int64_t channels) noexcept {
  constexpr std::int64_t multiple = 8;
  return (channels + multiple - 1) / multiple * multiple;
}

}  // namespace lockstep::gpu
