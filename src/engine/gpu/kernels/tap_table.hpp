#pragma once

#include "launch.hpp"
#include "lockstep/core/pixel_cut.hpp"
#include "lockstep/core/resample_taps.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

/// The ResampleTaps of all rows and columns of the output images, so that fp64 divisions are made
/// for each of these instead of for each pixel. Position `at` is a row, or a column + height.
struct TapTable {
  struct alignas(8) Range {
    std::int32_t first;
    std::int32_t count;
  };
  Range* ranges = nullptr;   ///< (images, positions)
  float* weights = nullptr;  ///< (images, most, positions)
  std::int64_t positions = 0;
  std::int64_t most = 0;  ///< taps of a position

  /// For output images of `extent`.
  TapTable(const ImageExtent& extent, std::int64_t most_taps)
      : positions(extent.height + extent.width), most(most_taps) {}
  [[nodiscard]] std::size_t bytes(std::int64_t images) const {
    return static_cast<std::size_t>(images * positions) *
           (sizeof(Range) + static_cast<std::size_t>(most) * sizeof(float));
  }
  void place(void* memory, std::int64_t images) {
    ranges = static_cast<Range*>(memory);
    weights = reinterpret_cast<float*>(ranges + images * positions);
  }

  struct Taps {
    Range range;
    const float* weights;
    std::int64_t stride;
    [[nodiscard]] LOCKSTEP_HOST_DEVICE float weight(std::int32_t tap) const {
      return weights[tap * stride];
    }
  };
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Taps taps(std::int64_t image, std::int64_t at) const {
    return {ranges[image * positions + at], weights + image * most * positions + at, positions};
  }
};

LOCKSTEP_HOST_DEVICE inline ImageResize resize_of(const PixelCut& cut, const ImageExtent& extent) {
  return {.rows = {.first = cut.top,
                   .source = cut.height,
                   .size = static_cast<std::int32_t>(extent.height)},
          .columns = {.first = cut.left,
                      .source = cut.width,
                      .size = static_cast<std::int32_t>(extent.width)},
          .filter = cut.filter};
}
LOCKSTEP_HOST_DEVICE inline ImageResize resize_of(const ImageResize& resize, const ImageExtent&) {
  return resize;
}

/// Whether the size stays, so that pixels are copied.
LOCKSTEP_HOST_DEVICE inline bool is_copied(const ImageResize& resize) {
  return resize.rows.source == resize.rows.size && resize.columns.source == resize.columns.size;
}

/// One item per image and position. Resize: ImageResize or PixelCut.
template <typename Resize>
struct SetTaps {
  /// At least: the weights are as many as the cut needs.
  enum : std::size_t { item_bytes = sizeof(TapTable::Range) };
  ImageExtent extent;
  const Resize* resizes;
  TapTable table;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, table.positions);
    const ImageResize resize = resize_of(resizes[place.quotient], extent);
    if (is_copied(resize)) return;
    const bool is_row = place.rest < extent.height;
    const AxisResize axis = is_row ? resize.rows : resize.columns;
    const ResampleTaps taps(axis.source, axis.size,
                            axis.at + (is_row ? place.rest : place.rest - extent.height),
                            resize.filter);
    table.ranges[item] = {static_cast<std::int32_t>(taps.first),
                          static_cast<std::int32_t>(taps.count)};
    float* const weights =
        table.weights + place.quotient * table.most * table.positions + place.rest;
    for (std::int64_t tap = 0; tap < taps.count; ++tap) {
      weights[tap * table.positions] = taps.weight(tap);
    }
  }
};

}  // namespace lockstep::gpu
