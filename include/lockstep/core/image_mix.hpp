#pragma once

#include "lockstep/core/host_device.hpp"

#include <cstdint>

namespace lockstep {

/// A rectangle of the network's image, in pixels; empty if its height or width is 0. Aligned so
/// that a device loads 16 bytes at once.
struct alignas(16) PixelBox {
  std::int32_t top = 0;
  std::int32_t left = 0;
  std::int32_t height = 0;
  std::int32_t width = 0;
  friend bool operator==(const PixelBox&, const PixelBox&) = default;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool is_empty() const { return height == 0 || width == 0; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool contains(std::int64_t y, std::int64_t x) const {
    return y >= top && y < top + height && x >= left && x < left + width;
  }
};

/// How a sample of a batch is mixed with another one. Its target is `weight` of its own and
/// 1 - weight of the partner's. Its image is the mean of both images with these weights (mixup) or,
/// if the box is not empty, its own with the partner's pixels in the box (CutMix). A sample that is
/// not mixed is its own partner.
struct ImageMix {
  std::int32_t partner = 0;  ///< index in the batch; of values, it may be that of a label behind it
  float weight = 1.0F;       ///< in [0, 1]
  PixelBox box = {};
  friend bool operator==(const ImageMix&, const ImageMix&) = default;
};

}  // namespace lockstep
