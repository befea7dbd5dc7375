#pragma once

#include "lockstep/core/image_resize.hpp"
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

/// All of `region`, resized to `target`.
[[nodiscard]] ImageResize resize_of(const Region& region, const ImageShape& target,
                                    ResampleFilter filter) noexcept;

/// torchvision's Resize of the short side to `short_side`, at least both sides of `target`, and
/// CenterCrop to `target`.
[[nodiscard]] ImageResize centre_of_resized(const ImageShape& image, std::int64_t short_side,
                                            const ImageShape& target,
                                            ResampleFilter filter) noexcept;

/// The pixels of the image that have an influence on `target`.
[[nodiscard]] Region source_region(const ImageResize& resize, const ImageShape& target) noexcept;

/// Source pixels and weights of all result pixels along one axis, as ResampleTaps. All have `count`
/// source pixels, some of them with weight 0, so that loops have one length.
struct PixelTaps {
  std::int64_t count = 0;
  std::vector<std::int64_t> first;  ///< (size,), from the first pixel that any of them needs
  std::vector<float> weights;       ///< (size, count)

  /// For `size` pixels of the axis.
  void set(const AxisResize& axis, std::int64_t size, ResampleFilter filter);
  [[nodiscard]] const float* weights_of(std::size_t at) const noexcept {
    return weights.data() + at * static_cast<std::size_t>(count);
  }
};

/// Resampling in two passes, with the filter widened when the image shrinks (antialiasing), as in
/// Pillow. Reuses its scratch memory and allocates only when images get larger.
class Resampler final {
 public:
  /// Resizes uint8 (H, W, C) `pixels` of `shape` to `target`, into `result`. source_region() must
  /// lie inside `shape`, not all of what `how` resizes.
  void resize(std::span<const std::byte> pixels, const ImageShape& shape, const ImageResize& how,
              ImageShape target, Image& result);

 private:
  PixelTaps horizontal_;
  PixelTaps vertical_;
  std::vector<float> strip_;             ///< (region width * C, rows at once)
  std::vector<float> lines_;             ///< (lines kept, width * C, rounded up)
  std::vector<const float*> row_lines_;  ///< lines of one row of the result
};

}  // namespace lockstep
