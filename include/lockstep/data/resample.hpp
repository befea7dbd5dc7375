#pragma once

#include "lockstep/data/decode.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Centre region of `height` x `width`; extends beyond `image` if that is smaller. Half pixels
/// round to even, as in torchvision's CenterCrop.
[[nodiscard]] Region centre_region(const ImageShape& image, std::int64_t height,
                                   std::int64_t width) noexcept;

/// The smallest shape with the aspect ratio of `image` that covers height x width; one side is
/// equal, and the other is rounded down, as in torchvision's Resize of the short side.
[[nodiscard]] ImageShape covering_shape(const ImageShape& image, std::int64_t height,
                                        std::int64_t width) noexcept;

/// Source pixels and weights of all result pixels along one axis, as ResampleTaps. All have `count`
/// source pixels, some of them with weight 0, so that loops have one length.
struct PixelTaps {
  std::int64_t count = 0;
  std::vector<std::int64_t> first;  ///< (size,)
  std::vector<float> weights;       ///< (size, count)

  void set(std::int64_t source, std::int64_t size);
  [[nodiscard]] const float* weights_of(std::size_t at) const noexcept {
    return weights.data() + at * static_cast<std::size_t>(count);
  }
};

/// Bilinear resampling in two passes, with the filter widened when the image shrinks
/// (antialiasing), as in Pillow. Reuses its scratch memory and allocates only when images get
/// larger.
class Resampler final {
 public:
  /// Resizes `region` of the uint8 (H, W, C) `pixels` of `shape` to `target`, into `result`.
  void resize(std::span<const std::byte> pixels, const ImageShape& shape, const Region& region,
              ImageShape target, Image& result);

 private:
  PixelTaps horizontal_;
  PixelTaps vertical_;
  std::vector<float> strip_;             ///< (region width * C, rows at once)
  std::vector<float> lines_;             ///< (lines kept, width * C, rounded up)
  std::vector<const float*> row_lines_;  ///< lines of one row of the result
};

}  // namespace lockstep
