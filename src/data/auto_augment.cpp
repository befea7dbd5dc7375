#include "lockstep/data/auto_augment.hpp"

#include "lockstep/data/image_ops.hpp"

#include <cmath>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int64_t trivial_augment_bins = 31;

/// The largest magnitude of each kind of operation.
struct LargestMagnitudes {
  double shear;
  double translate_x;  ///< pixels
  double translate_y;
  double rotate;  ///< degrees
  double enhance;
  double bits;  ///< that posterize drops
};

/// Magnitude `bin` of `bins`, which are equally spaced.
struct MagnitudeBin {
  std::int64_t bin;
  std::int64_t bins;

  /// The magnitude, up to `largest`.
  [[nodiscard]] double of(double largest) const noexcept {
    return largest * static_cast<double>(bin) / static_cast<double>(bins - 1);
  }
};

ImageOp draw_op(PhiloxStream& random) noexcept {
  return static_cast<ImageOp>(random.next_below(image_op_count));
}

/// The operation with its magnitude and, if it has one, a random sign.
DrawnOp with_magnitude(ImageOp op, const MagnitudeBin& bin, const LargestMagnitudes& largest,
                       PhiloxStream& random) noexcept {
  const auto signed_of = [&](double most) -> DrawnOp {
    const double magnitude = bin.of(most);
    return {.op = op, .magnitude = random.next_below(2) == 1 ? -magnitude : magnitude};
  };
  switch (op) {
    case ImageOp::shear_x:
    case ImageOp::shear_y:
      return signed_of(largest.shear);
    case ImageOp::translate_x:
      return signed_of(largest.translate_x);
    case ImageOp::translate_y:
      return signed_of(largest.translate_y);
    case ImageOp::rotate:
      return signed_of(largest.rotate);
    case ImageOp::brightness:
    case ImageOp::color:
    case ImageOp::contrast:
    case ImageOp::sharpness:
      return signed_of(largest.enhance);
    case ImageOp::posterize:
      return {.op = op, .magnitude = 8.0 - std::nearbyint(bin.of(largest.bits))};
    case ImageOp::solarize:
      return {.op = op, .magnitude = 255.0 - bin.of(255.0)};
    case ImageOp::identity:
    case ImageOp::autocontrast:
    case ImageOp::equalize:
      break;
  }
  return {.op = op};
}

}  // namespace

DrawnOp draw_trivial_augment(PhiloxStream& random) noexcept {
  const ImageOp op = draw_op(random);
  const MagnitudeBin bin{.bin = random.next_below(trivial_augment_bins),
                         .bins = trivial_augment_bins};
  return with_magnitude(op, bin,
                        {.shear = 0.99,
                         .translate_x = 32,
                         .translate_y = 32,
                         .rotate = 135,
                         .enhance = 0.99,
                         .bits = 6},
                        random);
}

DrawnOp draw_rand_augment(PhiloxStream& random, const AutoAugmentOptions& options,
                          const ImageShape& image) noexcept {
  const ImageOp op = draw_op(random);
  return with_magnitude(op, {.bin = options.magnitude, .bins = options.bins},
                        {.shear = 0.3,
                         .translate_x = 150.0 / 331.0 * static_cast<double>(image.width),
                         .translate_y = 150.0 / 331.0 * static_cast<double>(image.height),
                         .rotate = 30,
                         .enhance = 0.9,
                         .bits = 4},
                        random);
}

void AutoAugmenter::augment(PhiloxStream& random, const AutoAugmentOptions& options, Image& image) {
  switch (options.policy) {
    case AutoAugment::none:
      return;
    case AutoAugment::trivialaugment:
      return apply(draw_trivial_augment(random), options.interpolation, image);
    case AutoAugment::randaugment:
      for (std::int64_t i = 0; i < options.ops; ++i) {
        apply(draw_rand_augment(random, options, image.shape), options.interpolation, image);
      }
  }
}

void AutoAugmenter::apply(const DrawnOp& drawn, Interpolation interpolation, Image& image) {
  const double magnitude = drawn.magnitude;
  const double factor = 1.0 + magnitude;
  const auto whole = static_cast<std::int64_t>(magnitude);
  switch (drawn.op) {
    case ImageOp::identity:
      return;
    case ImageOp::brightness:
      return adjust_brightness(image, factor);
    case ImageOp::color:
      return adjust_color(image, factor);
    case ImageOp::contrast:
      return adjust_contrast(image, factor);
    case ImageOp::posterize:
      return posterize(image, static_cast<int>(whole));
    case ImageOp::solarize:
      return solarize(image, magnitude);
    case ImageOp::autocontrast:
      return autocontrast(image);
    case ImageOp::equalize:
      return equalize(image);
    // The others read neighbours, so they write another image.
    case ImageOp::sharpness:
      adjust_sharpness(image, factor, result_);
      break;
    case ImageOp::shear_x:
      shear_x(image, magnitude, interpolation, result_);
      break;
    case ImageOp::shear_y:
      shear_y(image, magnitude, interpolation, result_);
      break;
    case ImageOp::translate_x:
      translate(image, {.right = whole}, result_);
      break;
    case ImageOp::translate_y:
      translate(image, {.down = whole}, result_);
      break;
    case ImageOp::rotate:
      rotate(image, magnitude, interpolation, result_);
      break;
  }
  std::swap(image, result_);
}

}  // namespace lockstep
