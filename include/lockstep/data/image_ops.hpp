#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/data/decode.hpp"

namespace lockstep {

// The operations of RandAugment and TrivialAugment on uint8 images of 1 or 3 channels, to the pixel
// as Pillow computes them (ImageEnhance, ImageOps, Image.transform), which torchvision calls.

/// Mixes the image with black: `factor` 0 gives black, 1 the image, more a brighter image.
void adjust_brightness(Image& image, double factor);
/// Mixes the image with the mean of its greys. `factor` as above.
void adjust_contrast(Image& image, double factor);
/// Mixes each pixel with its grey. Images of one channel stay as they are.
void adjust_color(Image& image, double factor);
/// Mixes `image` with its mean over 3x3 pixels, whose centre counts five times. The outermost
/// pixels stay as they are; so does an image of fewer than 3 rows or columns.
void adjust_sharpness(const Image& image, double factor, Image& result);

/// Keeps the highest `bits` bits, 1 to 8, of each value.
void posterize(Image& image, int bits);
/// Inverts values of at least `threshold`.
void solarize(Image& image, double threshold);
/// Stretches each channel's values to 0 to 255.
void autocontrast(Image& image);
/// Maps each channel's values so that they become equally frequent.
void equalize(Image& image);

// Pixels that come from outside the image are 0. `result` becomes an image of the same shape.

/// Moves the image `right` and `down` by whole pixels.
struct Translation {
  std::int64_t right = 0;
  std::int64_t down = 0;
};
void translate(const Image& image, Translation by, Image& result);
/// Pixel (x, y) of the result is (x + level * y, y) of the image.
void shear_x(const Image& image, double level, Interpolation interpolation, Image& result);
/// Pixel (x, y) of the result is (x, y + level * x) of the image.
void shear_y(const Image& image, double level, Interpolation interpolation, Image& result);
/// Rotates the image around its centre, counter-clockwise.
void rotate(const Image& image, double degrees, Interpolation interpolation, Image& result);

}  // namespace lockstep
