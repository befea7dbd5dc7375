#pragma once

#include "lockstep/data/decode.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// A rectangle of an image, in pixels.
struct Region {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

/// Centre region of `height` x `width`; extends beyond `image` if that is smaller. Half pixels
/// round to even, as in torchvision's CenterCrop.
[[nodiscard]] Region centre_region(const ImageShape& image, std::int64_t height,
                                   std::int64_t width) noexcept;

/// Shape of `image` with its short side resized to `short_side`; the long side is rounded down, as
/// in torchvision's Resize.
[[nodiscard]] ImageShape short_side_shape(const ImageShape& image,
                                          std::int64_t short_side) noexcept;

/// Bilinear resampling in two passes, with the filter widened when the image shrinks
/// (antialiasing), as in Pillow. Reuses its scratch memory and allocates only when images get
/// larger.
class Resampler final {
 public:
  /// Resizes `region` of the uint8 (H, W, C) `pixels` of `shape` to `target`, into `result`.
  void resize(std::span<const std::byte> pixels, const ImageShape& shape, const Region& region,
              ImageShape target, Image& result);

 private:
  struct Taps {
    std::vector<std::int64_t> first;  ///< (size,), source pixel of the first tap
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
