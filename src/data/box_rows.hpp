#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/core/image_mix.hpp"
#include "lockstep/core/image_shape.hpp"

#include <cstdint>

namespace lockstep {

/// Calls visit(begin, size) for each range of adjacent values of the box in an image.
template <typename Visit>
void for_each_row(const PixelBox& box, const ImageShape& image, ImageLayout layout,
                  const Visit& visit) {
  const bool planes = layout == ImageLayout::nchw;
  const std::int64_t step = planes ? 1 : image.channels;  // from a pixel to the next
  for (std::int64_t plane = 0; plane < (planes ? image.channels : 1); ++plane) {
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      visit(((plane * image.height + y) * image.width + box.left) * step, box.width * step);
    }
  }
}

}  // namespace lockstep
