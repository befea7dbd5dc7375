#pragma once

#include "winograd_layouts.hpp"

#include <cstdint>

namespace lockstep::cpu {

/// Transformed values: a matrix (rows, channels) per point. Rows are tiles, or the filter's rows.
struct PointMatrices {
  float* values = nullptr;
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  std::int64_t stride = 0;  ///< from a matrix to the next, in values
};

/// Tiles [first, last), whose rows in the matrices start at `row`.
struct TileRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t row = 0;
};

// The transforms of Winograd's algorithm, each in the calling thread. Images are of the type that
// their layout says; transformed values are in fp32.

/// Transforms the pixels that each tile of the result reads; pixels beyond the edges are zero.
void source_to_points(const PixelLayout& layout, const void* source, const TileGrid& grid,
                      const TileRange& range, const PointMatrices& to);
/// Transforms each tile of the result's gradient.
void gradient_to_points(const PixelLayout& layout, const void* gradient, const TileGrid& grid,
                        const TileRange& range, const PointMatrices& to);
/// Writes each tile of the result, plus `bias` (padded like the layout) unless that is null.
void points_to_result(const PixelLayout& layout, const PointMatrices& from, const TileGrid& grid,
                      const TileRange& range, const float* bias, void* result);
/// Adds the pixels of the tiles to `sums`, one value per channel, padded like the layout.
void add_tiles(const PixelLayout& layout, const void* image, const TileGrid& grid,
               const TileRange& range, float* sums);

/// Rows [first, last) of a filter.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
/// `rotated`: by 180 degrees, for the gradient of the source.
struct FilterToPoints {
  const FilterLayout& layout;
  int outputs;
  bool rotated;
};
void filter_to_points(const FilterToPoints& of, const float* filter, const RowRange& range,
                      const PointMatrices& to);
/// Adds `copies` sets of matrices, one after another, and transforms the sums to the filter's
/// gradient.
struct PointsToFilter {
  const FilterLayout& layout;
  int outputs;
  int copies;
  std::int64_t copy_stride;  ///< in values
};
void points_to_filter(const PointsToFilter& of, const PointMatrices& from, const RowRange& range,
                      float* filter);

}  // namespace lockstep::cpu
