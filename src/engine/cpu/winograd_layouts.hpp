#pragma once

#include "onednn.hpp"

#include <cstdint>
#include <optional>

namespace lockstep::cpu {

/// Where the vectors of a (N, C, H, W) tensor are: channels last, or in blocks of adjacent
/// channels. A vector holds `lanes` adjacent channels of a pixel. Strides are in values.
struct PixelLayout {
  bool bf16 = false;  ///< else fp32
  int lanes = 0;
  std::int64_t vectors = 0;  ///< per pixel; the last one may hold padding
  std::int64_t images = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t image_stride = 0;
  std::int64_t vector_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t pixel_stride = 0;

  [[nodiscard]] std::int64_t channels() const noexcept { return vectors * lanes; }
  /// Bytes from the first vector of a pixel to vector `index`.
  [[nodiscard]] std::int64_t vector_offset(std::int64_t index) const noexcept {
    return index * vector_stride * (bf16 ? 2 : 4);
  }
  /// Empty if the tensor has no such layout.
  [[nodiscard]] static std::optional<PixelLayout> of(const Desc& desc, int lanes);
};

/// Where the vectors of a filter are: (K, C, 3, 3), fp32, in blocks of `lanes` x `lanes` channels.
/// A vector holds adjacent channels of the convolution's result, a row one channel of its source.
struct FilterLayout {
  int lanes = 0;
  std::int64_t rows = 0;          ///< padded
  std::int64_t vectors = 0;       ///< per row
  std::int64_t block_stride = 0;  ///< from a row to the one `lanes` rows below
  std::int64_t vector_stride = 0;
  std::int64_t height_stride = 0;
  std::int64_t width_stride = 0;

  /// The layout for a convolution's weight (K, C, 3, 3) if vectors hold channels of `axis`.
  [[nodiscard]] static Desc desc(const Dims& dims, int lanes, int axis);
  [[nodiscard]] static FilterLayout of(const Desc& desc, int lanes, int axis);
};

/// The tiles of a convolution's result, in the order (N, row, column). A tile has `outputs` x
/// `outputs` pixels, fewer at the right and lower edges.
struct TileGrid {
  int outputs = 0;
  std::int64_t padding = 0;
  std::int64_t images = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  [[nodiscard]] std::int64_t tiles() const noexcept { return images * rows * columns; }
  [[nodiscard]] int points() const noexcept { return (outputs + 2) * (outputs + 2); }
  /// Products of an image, per pair of channels.
  [[nodiscard]] std::int64_t products() const noexcept { return points() * rows * columns; }
};

}  // namespace lockstep::cpu
