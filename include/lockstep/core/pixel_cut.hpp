#pragma once

#include "lockstep/core/image_resize.hpp"

#include <cstdint>

namespace lockstep {

/// Region of a stored image that becomes the network's image: `height` x `width` pixels, mirrored
/// if `flip` is not 0. If its size is not the network's, it is resampled by `filter` and lies
/// inside the stored image; else it may extend beyond the stored image, where pixels are 0. Aligned
/// so that a device loads 16 bytes at once.
struct alignas(16) PixelCut {
  std::int32_t top = 0;
  std::int32_t left = 0;
  std::int32_t height = 0;
  std::int32_t width = 0;
  std::int32_t flip = 0;
  ResampleFilter filter = ResampleFilter::bilinear;
  friend bool operator==(const PixelCut&, const PixelCut&) = default;
};

}  // namespace lockstep
