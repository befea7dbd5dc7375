#include "image_values.hpp"
#include "lockstep/core/vector_types.hpp"
#include "lockstep/data/image_ops.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>

namespace lockstep {
namespace {

/// The point (x, y) of the result comes from (a x + b y + c, d x + e y + f) of the image. Points
/// are pixels' centres: (0.5, 0.5) is the first pixel's.
struct AffineMap {
  double a = 1;
  double b = 0;
  double c = 0;
  double d = 0;
  double e = 1;
  double f = 0;
};

/// Copies a pixel of 1 or 3 channels.
template <int channels>
void copy_pixel(const std::uint8_t* from, std::uint8_t* to) noexcept {
  std::memcpy(to, from, channels);
}

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

std::int64_t divide_down(std::int64_t number, std::int64_t by) noexcept {
  return number / by - (number % by < 0 ? 1 : 0);
}

/// The i in [0, count) with 0 <= start + step * i < limit.
Range range_within(std::int64_t start, std::int64_t step, std::int64_t limit,
                   std::int64_t count) noexcept {
  if (step == 0) return {.begin = 0, .end = start >= 0 && start < limit ? count : 0};
  // Falling values: those that rise the other way.
  if (step < 0) {
    const Range mirrored = range_within(start + step * (count - 1), -step, limit, count);
    return {.begin = count - mirrored.end, .end = count - mirrored.begin};
  }
  const std::int64_t begin = std::clamp<std::int64_t>(-divide_down(start, step), 0, count);
  const std::int64_t end = divide_down(limit - 1 - start, step) + 1;
  return {.begin = begin, .end = std::clamp(end, begin, count)};
}

/// The nearest pixels, in fixed point with 16 bits after the point, as Pillow.
template <int channels>
void warp_to_nearest(const Image& image, const AffineMap& map, Image& result) noexcept {
  const auto fixed = [](double value) {
    return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5));
  };
  const std::int64_t width = image.shape.width;
  const std::int64_t height = image.shape.height;
  const std::int64_t x_step = fixed(map.a);
  const std::int64_t y_step = fixed(map.d);
  std::int64_t x_begin = fixed(map.c + map.a * 0.5 + map.b * 0.5);
  std::int64_t y_begin = fixed(map.f + map.d * 0.5 + map.e * 0.5);
  std::uint8_t* out = values_of(result);
  std::memset(out, 0, result.pixels.size());
  for (std::int64_t row = 0; row < height; ++row, out += width * channels) {
    const Range x_inside = range_within(x_begin, x_step, width << 16, width);
    const Range y_inside = range_within(y_begin, y_step, height << 16, width);
    const std::int64_t end = std::min(x_inside.end, y_inside.end);
    for (std::int64_t i = std::max(x_inside.begin, y_inside.begin); i < end; ++i) {
      const std::int64_t x = (x_begin + x_step * i) >> 16;
      const std::int64_t y = (y_begin + y_step * i) >> 16;
      copy_pixel<channels>(values_of(image) + (y * width + x) * channels, out + i * channels);
    }
    x_begin += fixed(map.b);
    y_begin += fixed(map.e);
  }
}

/// Two neighbours along an axis and the weight of the second; at an edge, the edge's pixel twice.
struct Neighbours {
  std::int64_t first;
  std::int64_t second;
  double weight;

  Neighbours(double point, std::int64_t extent) noexcept {
    const double centre = point - 0.5;
    auto below = static_cast<std::int32_t>(centre);
    below -= centre < below ? 1 : 0;
    weight = centre - below;
    first = std::max(below, 0);
    second = std::min<std::int64_t>(below + 1, extent - 1);
  }
};

/// The values of one pixel.
using Doubles __attribute__((vector_size(4 * sizeof(double)))) = double;
using Ints = VectorTypes<4>::Ints;

template <int channels>
LOCKSTEP_INLINED inline Doubles load_pixel(const std::uint8_t* from) {
  const Ints values = channels == 1 ? Ints{from[0]} : Ints{from[0], from[1], from[2]};
  return __builtin_convertvector(values, Doubles);
}

/// The mean of the four nearest pixels by distance, rounded down, as Pillow.
template <int channels>
LOCKSTEP_INLINED inline void warp_bilinear(const Image& image, const AffineMap& map,
                                           Image& result) {
  const std::int64_t width = image.shape.width;
  const std::int64_t height = image.shape.height;
  const auto in_width = static_cast<double>(width);
  const auto in_height = static_cast<double>(height);
  std::uint8_t* out = values_of(result);
  std::memset(out, 0, result.pixels.size());
  for (std::int64_t row = 0; row < height; ++row) {
    const double at_y = static_cast<double>(row) + 0.5;
    for (std::int64_t i = 0; i < width; ++i, out += channels) {
      const double at_x = static_cast<double>(i) + 0.5;
      const double x = map.a * at_x + map.b * at_y + map.c;
      const double y = map.d * at_x + map.e * at_y + map.f;
      if (!(x >= 0.0 && x < in_width && y >= 0.0 && y < in_height)) continue;
      const Neighbours columns(x, width);
      const Neighbours rows(y, height);
      const auto mean_of_row = [&](std::int64_t at_row) LOCKSTEP_INLINED {
        const std::uint8_t* const line = values_of(image) + at_row * width * channels;
        const Doubles first = load_pixel<channels>(line + columns.first * channels);
        const Doubles second = load_pixel<channels>(line + columns.second * channels);
        return first + (second - first) * columns.weight;
      };
      const Doubles upper = mean_of_row(rows.first);
      const Doubles lower = mean_of_row(rows.second);
      const Ints values = __builtin_convertvector(upper + (lower - upper) * rows.weight, Ints);
      for (int c = 0; c < channels; ++c) out[c] = static_cast<std::uint8_t>(values[c]);
    }
  }
}

void warp(const Image& image, const AffineMap& map, Interpolation interpolation, Image& result) {
  take_shape(image, result);
  const bool is_grey = image.shape.channels == 1;
  if (interpolation == Interpolation::nearest) {
    is_grey ? warp_to_nearest<1>(image, map, result) : warp_to_nearest<3>(image, map, result);
    return;
  }
  vector_loops::run([&]() LOCKSTEP_INLINED {
    is_grey ? warp_bilinear<1>(image, map, result) : warp_bilinear<3>(image, map, result);
  });
}

/// The angle whose tangent is `level`. torchvision converts it to degrees and back.
double shear_angle(double level) noexcept {
  return std::atan(level) * (180.0 / std::numbers::pi) * (std::numbers::pi / 180.0);
}

/// The value with 15 decimals, so that right angles move pixels exactly. The decimals are rounded
/// as text because 1e15 times the value is not exact.
double round_decimals(double value) noexcept {
  std::array<char, 32> text;
  const char* const end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 15)
          .ptr;
  std::from_chars(text.data(), end, value);
  return value;
}

}  // namespace

void translate(const Image& image, Translation by, Image& result) {
  take_shape(image, result);
  const std::int64_t width = image.shape.width;
  const std::int64_t height = image.shape.height;
  const std::int64_t channels = image.shape.channels;
  const Range columns = range_within(-by.right, 1, width, width);
  const Range rows = range_within(-by.down, 1, height, height);
  std::uint8_t* const out = values_of(result);
  std::memset(out, 0, result.pixels.size());
  for (std::int64_t y = rows.begin; y < rows.end; ++y) {
    const std::uint8_t* const from =
        values_of(image) + ((y - by.down) * width + columns.begin - by.right) * channels;
    std::copy_n(from, (columns.end - columns.begin) * channels,
                out + (y * width + columns.begin) * channels);
  }
}

void shear_x(const Image& image, double level, Interpolation interpolation, Image& result) {
  warp(image, {.b = std::tan(shear_angle(level))}, interpolation, result);
}

void shear_y(const Image& image, double level, Interpolation interpolation, Image& result) {
  const double angle = shear_angle(level);
  warp(image, {.d = std::sin(angle) / std::cos(angle)}, interpolation, result);
}

void rotate(const Image& image, double degrees, Interpolation interpolation, Image& result) {
  const double angle = -(degrees < 0 ? degrees + 360.0 : degrees) * (std::numbers::pi / 180.0);
  AffineMap map{.a = round_decimals(std::cos(angle)),
                .b = round_decimals(std::sin(angle)),
                .d = round_decimals(-std::sin(angle)),
                .e = round_decimals(std::cos(angle))};
  const double centre_x = static_cast<double>(image.shape.width) / 2.0;
  const double centre_y = static_cast<double>(image.shape.height) / 2.0;
  map.c = map.a * -centre_x + map.b * -centre_y + centre_x;
  map.f = map.d * -centre_x + map.e * -centre_y + centre_y;
  warp(image, map, interpolation, result);
}

}  // namespace lockstep
