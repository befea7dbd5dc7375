#pragma once

#include <cstdint>

namespace lockstep {

/// Filters of ResampleTaps, as Pillow's.
enum class ResampleFilter : std::int32_t { bilinear, bicubic };

/// One axis of an ImageResize: `source` pixels from `first` on become `size` pixels, of which those
/// from `at` on are wanted.
struct AxisResize {
  std::int32_t first = 0;
  std::int32_t source = 0;
  std::int32_t size = 0;
  std::int32_t at = 0;
  friend bool operator==(const AxisResize&, const AxisResize&) = default;
};

/// Resizes a region of an image and crops the result; whoever holds the target knows its extent.
/// Aligned so that a device loads 16 bytes at once.
struct alignas(16) ImageResize {
  AxisResize rows;
  AxisResize columns;
  ResampleFilter filter = ResampleFilter::bilinear;
  friend bool operator==(const ImageResize&, const ImageResize&) = default;
};

}  // namespace lockstep
