#pragma once

#include "lockstep/data/decode.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// A part of an image, in pixels.
struct Region {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

/// Region of `size` (height, width) in the middle of `image`; may reach beyond it where it is
/// smaller. Half pixels are rounded to even, as in torchvision's CenterCrop.
[[nodiscard]] Region centre_region(const ImageShape& image, std::int64_t height,
                                   std::int64_t width) noexcept;

/// The extents of `image` once its short side is `short_side`; the long one is rounded down, as in
/// torchvision's Resize.
[[nodiscard]] ImageShape short_side_shape(const ImageShape& image,
                                          std::int64_t short_side) noexcept;

/// Bilinear resampling with the filter widened where the image shrinks (no aliasing), in two
/// passes, as Pillow does it. Holds its scratch memory, so that a thread allocates only while
/// images grow.
class Resampler final {
 public:
  /// `region` of uint8 (H, W, C) `pixels` of `shape` to (height, width, C) in `result`.
  void resize(std::span<const std::byte> pixels, const ImageShape& shape, const Region& region,
              ImageShape target, Image& result);

 private:
  struct Taps {
    std::vector<std::int64_t> first;  ///< (size,), of the source
    std::vector<std::int64_t> count;
    std::vector<float> weights;  ///< (size, longest)
    std::int64_t longest = 0;
  };
  static void set_taps(Taps& taps, std::int64_t source, std::int64_t size);

  Taps horizontal_;
  Taps vertical_;
  std::vector<float> rows_;  ///< (region height, width, C)
  std::vector<float> line_;  ///< (width * C)
};

}  // namespace lockstep
