#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/core/image_mix.hpp"
#include "lockstep/core/image_shape.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/data/resample.hpp"
#include "lockstep/data/sample_order.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Position of the network's image within a stored image, and whether it is mirrored. The window
/// may extend beyond the image; pixels outside have raw value 0.
struct Window {
  std::int64_t top = 0;
  std::int64_t left = 0;
  bool flip = false;
  friend bool operator==(const Window&, const Window&) = default;
};

/// torchvision's RandomCrop(size, padding) and RandomHorizontalFlip, drawn in that order: top,
/// left, flip. image + 2 * padding >= target in both axes.
[[nodiscard]] Window draw_crop_flip(PhiloxStream& random, const ImageShape& image,
                                    const ImageShape& target, std::int64_t padding) noexcept;

/// torchvision's RandomResizedCrop: area 0.08 to 1 of the image, aspect ratio 3/4 to 4/3, ten
/// tries, then the largest centred region whose ratio is in range.
[[nodiscard]] Region draw_resized_crop(PhiloxStream& random, const ImageShape& image) noexcept;

/// torchvision's RandomErasing: with the given probability, a box of 0.02 to 0.33 of the area and
/// an aspect ratio of 0.3 to 3.3. Empty if nothing is erased, also if no box of ten tries fits.
[[nodiscard]] PixelBox draw_erased_box(PhiloxStream& random, double probability,
                                       const ImageShape& image) noexcept;
/// Sets the box's values of a normalised image to 0.
void erase_box(const PixelBox& box, const ImageShape& image, ImageLayout layout,
               float* values) noexcept;

/// Random numbers for augmentation. A pure function of its arguments, so a run can resume anywhere.
[[nodiscard]] inline PhiloxStream augmentation_stream(std::uint64_t seed, std::int64_t epoch,
                                                      SampleCopy sample) noexcept {
  return {seed, RandomPurpose::augmentation, sample.key(), static_cast<std::uint32_t>(epoch)};
}

/// The same for random erasing.
[[nodiscard]] inline PhiloxStream erasing_stream(std::uint64_t seed, std::int64_t epoch,
                                                 SampleCopy sample) noexcept {
  return {seed, RandomPurpose::erasing, sample.key(), static_cast<std::uint32_t>(epoch)};
}

/// The blocks that stochastic depth drops for a sample, as in Batch::dropped, given each block's
/// probability. A pure function of its arguments, so a run can resume anywhere.
[[nodiscard]] inline std::uint64_t draw_dropped_blocks(std::span<const float> probabilities,
                                                       std::uint64_t seed, std::int64_t epoch,
                                                       SampleCopy sample) noexcept {
  PhiloxStream random(seed, RandomPurpose::stochastic_depth, sample.key(),
                      static_cast<std::uint32_t>(epoch));
  std::uint64_t dropped = 0;
  for (std::size_t block = 0; block < probabilities.size(); ++block) {
    if (random.next_float() < probabilities[block]) dropped |= std::uint64_t{1} << block;
  }
  return dropped;
}

/// Copies `window` of the uint8 (H, W, C) `pixels` of `shape` to the pixels of `result`, whose
/// shape is the window's.
void copy_window(std::span<const std::byte> pixels, const ImageShape& shape, const Window& window,
                 Image& result);

/// Computes (pixel / 255 - mean) / std with a table of 256 values per channel.
class Normalizer final {
 public:
  /// mean, std: (C,), std > 0.
  Normalizer(std::span<const float> mean, std::span<const float> std);

  /// (C, 256): the normalised value of each pixel value.
  [[nodiscard]] std::span<const float> values() const noexcept { return table_; }

  struct Target {
    ImageShape shape;
    ImageLayout layout = ImageLayout::nchw;
  };
  /// Writes `window` of the uint8 (H, W, C) `pixels` of `shape` to `out`, as floats of `target`.
  void write(std::span<const std::byte> pixels, const ImageShape& shape, const Window& window,
             const Target& target, float* out) const noexcept;

 private:
  std::int64_t channels_;
  std::vector<float> table_;  ///< (C, 256)
};

}  // namespace lockstep
