#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/core/image_shape.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/data/decode.hpp"
#include "lockstep/data/sample_order.hpp"

#include <cstdint>

namespace lockstep {

/// How images are augmented at random after crop, resize and flip.
/// Sources: E. Cubuk et al., "RandAugment", 2019; S. Mueller and F. Hutter, "TrivialAugment", 2021;
/// operations and magnitudes are those of torchvision's RandAugment and TrivialAugmentWide.
struct AutoAugmentOptions {
  AutoAugment policy = AutoAugment::none;
  std::int64_t ops = 2;        ///< operations per image; of RandAugment, as the next two
  std::int64_t magnitude = 9;  ///< in [0, bins)
  std::int64_t bins = 31;      ///< number of magnitudes, at least 2
  Interpolation interpolation = Interpolation::nearest;
  [[nodiscard]] bool any() const noexcept { return policy != AutoAugment::none; }
};

/// The operations, in torchvision's order.
enum class ImageOp {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  autocontrast,
  equalize,
};
inline constexpr int image_op_count = 14;

/// An operation and its magnitude with sign: a level of shears, pixels (rounded towards 0),
/// degrees, the factor less 1, bits, the threshold, or 0.
struct DrawnOp {
  ImageOp op = ImageOp::identity;
  double magnitude = 0;
  friend bool operator==(const DrawnOp&, const DrawnOp&) = default;
};

/// Random numbers for the operations. A pure function of its arguments, so a run can resume
/// anywhere.
[[nodiscard]] inline PhiloxStream auto_augment_stream(std::uint64_t seed, std::int64_t epoch,
                                                      SampleCopy sample) noexcept {
  return {seed, RandomPurpose::auto_augment, sample.key(), static_cast<std::uint32_t>(epoch)};
}

/// TrivialAugmentWide's operation: any of them with any of 31 magnitudes and any sign.
[[nodiscard]] DrawnOp draw_trivial_augment(PhiloxStream& random) noexcept;
/// One of RandAugment's operations: any of them with any sign. Largest translations are 150 / 331
/// of the image.
[[nodiscard]] DrawnOp draw_rand_augment(PhiloxStream& random, const AutoAugmentOptions& options,
                                        const ImageShape& image) noexcept;

/// Applies operations. Reuses its scratch memory.
class AutoAugmenter final {
 public:
  /// Draws the options' operations and applies them to an image of 1 or 3 channels.
  void augment(PhiloxStream& random, const AutoAugmentOptions& options, Image& image);
  void apply(const DrawnOp& drawn, Interpolation interpolation, Image& image);

 private:
  Image result_;
};

}  // namespace lockstep
