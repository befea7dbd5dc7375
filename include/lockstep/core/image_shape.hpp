#pragma once

#include "lockstep/core/shape.hpp"

#include <cstdint>

namespace lockstep {

/// Size of one image.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  friend bool operator==(const ImageShape&, const ImageShape&) = default;

  /// C,H,W.
  [[nodiscard]] Shape shape() const { return {channels, height, width}; }
};

/// The image of a C,H,W input. Error(usage) with the shape if it has another number of axes.
[[nodiscard]] ImageShape image_shape(const Shape& input);

}  // namespace lockstep
