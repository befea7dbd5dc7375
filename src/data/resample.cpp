#include "lockstep/data/resample.hpp"

#include "lockstep/core/resample_taps.hpp"
#include "lockstep/core/vector_types.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

/// The horizontal pass works on a strip of this many rows, which it stores column by column, so
/// that a vector holds one column of the strip and every lane has the same taps.
constexpr std::int64_t strip_rows = 16;
constexpr std::int64_t round_up(std::int64_t value) noexcept {
  return (value + strip_rows - 1) / strip_rows * strip_rows;
}

/// Values 2i and 2i + 1 of the result are value half * n / 2 + i of `a` and of `b`.
template <int half, typename Vector, int... i>
LOCKSTEP_INLINED inline Vector interleave(const Vector& a, const Vector& b,
                                          std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  return __builtin_shufflevector(a, b, (half * n / 2 + i / 2 + i % 2 * n)...);
}

/// Transposes a square matrix of n rows.
template <int n, typename Vector>
LOCKSTEP_INLINED inline void transpose(std::array<Vector, n>& rows) {
  constexpr std::make_integer_sequence<int, n> lanes;
  for (int stage = 1; stage < n; stage *= 2) {
    std::array<Vector, n> next;
    for (std::size_t i = 0; i < n / 2; ++i) {
      next[2 * i] = interleave<0>(rows[i], rows[i + n / 2], lanes);
      next[2 * i + 1] = interleave<1>(rows[i], rows[i + n / 2], lanes);
    }
    rows = next;
  }
}

/// Stores 16 bytes as fp32. GCC 12 converts vectors value by value, unless a value's size stays the
/// same, doubles or halves.
template <int width>
LOCKSTEP_INLINED inline void store_as_floats(const VectorTypes<strip_rows>::Bytes& bytes,
                                             float* to) {
  using Types = VectorTypes<width>;
  std::array<std::uint8_t, strip_rows> values;
  store_bytes(bytes, values.data());
  for (std::size_t i = 0; i < strip_rows; i += width) {
    const auto halves = __builtin_convertvector(
        load_bytes<typename Types::Bytes>(values.data() + i), typename Types::Halves);
    store_bytes(__builtin_convertvector(__builtin_convertvector(halves, typename Types::Ints),
                                        typename Types::Float),
                to + i);
  }
}

/// Stores `columns` bytes of each row as fp32, column by column: (columns, strip_rows).
template <int width>
LOCKSTEP_INLINED inline void store_columns(const std::array<const std::uint8_t*, strip_rows>& rows,
                                           std::int64_t columns, float* strip) {
  using Bytes = VectorTypes<strip_rows>::Bytes;
  std::int64_t column = 0;
  for (; column + strip_rows <= columns; column += strip_rows) {
    std::array<Bytes, strip_rows> block;
    for (std::size_t i = 0; i < strip_rows; ++i) block[i] = load_bytes<Bytes>(rows[i] + column);
    transpose<strip_rows>(block);
    for (const Bytes& bytes : block) {
      store_as_floats<width>(bytes, strip);
      strip += strip_rows;
    }
  }
  for (; column < columns; ++column) {
    for (const std::uint8_t* row : rows) *strip++ = static_cast<float>(row[column]);
  }
}

/// As clamp_sum().
template <typename Float>
LOCKSTEP_INLINED inline Float clamp_sums(Float values) {
  values = values > 0.0F ? values : Float{};
  return values < 255.0F ? values : Float{} + 255.0F;
}

/// As to_pixel().
template <int width>
LOCKSTEP_INLINED inline typename VectorTypes<width>::Bytes to_pixels(
    typename VectorTypes<width>::Float values) {
  using Types = VectorTypes<width>;
  const auto integers = __builtin_convertvector(clamp_sums(values), typename Types::Ints);
  return __builtin_convertvector(__builtin_convertvector(integers, typename Types::Halves),
                                 typename Types::Bytes);
}

/// Resamples the columns of a strip and stores the sums row by row, `line` values apart.
template <int width, bool clamps>
LOCKSTEP_INLINED inline void resample_columns(const float* strip, const PixelTaps& taps,
                                              std::int64_t channels, float* lines,
                                              std::int64_t line) {
  using Float = typename VectorTypes<width>::Float;
  constexpr int parts = strip_rows / width;
  std::array<std::array<Float, width>, parts> block{};
  const std::int64_t values = std::ssize(taps.first) * channels;
  std::size_t x = 0;
  std::int64_t channel = 0;
  for (std::int64_t begin = 0; begin < values; begin += width) {
    const std::int64_t count = std::min<std::int64_t>(width, values - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      const float* const weights = taps.weights_of(x);
      const float* column = strip + (taps.first[x] * channels + channel) * strip_rows;
      if (++channel == channels) {
        channel = 0;
        ++x;
      }
      std::array<Float, parts> sums{};
      for (std::int64_t tap = 0; tap < taps.count; ++tap, column += channels * strip_rows) {
        for (std::size_t part = 0; part < parts; ++part) {
          sums[part] += weights[tap] * load_bytes<Float>(column + part * width);
        }
      }
      for (std::size_t part = 0; part < parts; ++part) {
        if constexpr (clamps) sums[part] = clamp_sums(sums[part]);
        block[part][static_cast<std::size_t>(i)] = sums[part];
      }
    }
    for (std::size_t part = 0; part < parts; ++part) {
      std::array<Float, width> rows = block[part];
      transpose<width>(rows);
      float* to = lines + static_cast<std::int64_t>(part) * width * line + begin;
      for (const Float& row : rows) {
        store_bytes(row, to);
        to += line;
      }
    }
  }
}

/// Sums the lines of one row of the result, with one weight each.
template <int width>
LOCKSTEP_INLINED inline void resample_row(std::span<const float* const> lines, const float* weights,
                                          std::int64_t values, std::uint8_t* out) {
  using Float = typename VectorTypes<width>::Float;
  for (std::int64_t begin = 0; begin < values; begin += width) {
    Float sum = Float{} + 0.5F;  // so that to_pixels() rounds
    for (std::size_t i = 0; i < lines.size(); ++i) {
      sum += weights[i] * load_bytes<Float>(lines[i] + begin);
    }
    const auto pixels = to_pixels<width>(sum);
    if (begin + width <= values) {
      store_bytes(pixels, out + begin);
    } else {
      std::memcpy(out + begin, &pixels, static_cast<std::size_t>(values - begin));
    }
  }
}

ResampleTaps taps_of(const AxisResize& axis, std::int64_t i, ResampleFilter filter) {
  return {axis.source, axis.size, axis.at + i, filter};
}

/// Source pixels [begin, end), counted from AxisResize::first.
struct PixelRange {
  std::int64_t begin;
  std::int64_t end;
};
/// What `size` pixels of the axis are made of.
PixelRange source_range(const AxisResize& axis, std::int64_t size, ResampleFilter filter) {
  const ResampleTaps last = taps_of(axis, size - 1, filter);
  return {.begin = taps_of(axis, 0, filter).first, .end = last.first + last.count};
}

AxisResize axis_of(std::int64_t first, std::int64_t source, std::int64_t size, std::int64_t at) {
  return {.first = static_cast<std::int32_t>(first),
          .source = static_cast<std::int32_t>(source),
          .size = static_cast<std::int32_t>(size),
          .at = static_cast<std::int32_t>(at)};
}

}  // namespace

void PixelTaps::set(const AxisResize& axis, std::int64_t size, ResampleFilter filter) {
  count = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    count = std::max(count, taps_of(axis, i, filter).count);
  }
  const PixelRange read = source_range(axis, size, filter);
  first.resize(static_cast<std::size_t>(size));
  weights.assign(static_cast<std::size_t>(size * count), 0.0F);
  for (std::int64_t i = 0; i < size; ++i) {
    const ResampleTaps taps = taps_of(axis, i, filter);
    const std::int64_t begin = std::min(taps.first, read.end - count);
    first[static_cast<std::size_t>(i)] = begin - read.begin;
    float* const target = weights.data() + i * count + (taps.first - begin);
    for (std::int64_t tap = 0; tap < taps.count; ++tap) target[tap] = taps.weight(tap);
  }
}

Region centre_region(const ImageShape& image, std::int64_t height, std::int64_t width) noexcept {
  const auto margin = [](std::int64_t outer, std::int64_t inner) {
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(outer - inner) / 2.0));
  };
  return {.top = margin(image.height, height),
          .left = margin(image.width, width),
          .height = height,
          .width = width};
}

ImageShape covering_shape(const ImageShape& image, std::int64_t height,
                          std::int64_t width) noexcept {
  const bool wider = image.width * height >= image.height * width;
  return {.channels = image.channels,
          .height = wider ? height : image.height * width / image.width,
          .width = wider ? image.width * height / image.height : width};
}

ImageResize resize_of(const Region& region, const ImageShape& target,
                      ResampleFilter filter) noexcept {
  return {.rows = axis_of(region.top, region.height, target.height, 0),
          .columns = axis_of(region.left, region.width, target.width, 0),
          .filter = filter};
}

ImageResize centre_of_resized(const ImageShape& image, std::int64_t short_side,
                              const ImageShape& target, ResampleFilter filter) noexcept {
  const ImageShape resized = covering_shape(image, short_side, short_side);
  const Region window = centre_region(resized, target.height, target.width);
  return {.rows = axis_of(0, image.height, resized.height, window.top),
          .columns = axis_of(0, image.width, resized.width, window.left),
          .filter = filter};
}

Region source_region(const ImageResize& resize, const ImageShape& target) noexcept {
  const PixelRange rows = source_range(resize.rows, target.height, resize.filter);
  const PixelRange columns = source_range(resize.columns, target.width, resize.filter);
  return {.top = resize.rows.first + rows.begin,
          .left = resize.columns.first + columns.begin,
          .height = rows.end - rows.begin,
          .width = columns.end - columns.begin};
}

void Resampler::resize(std::span<const std::byte> pixels, const ImageShape& shape,
                       const ImageResize& how, ImageShape target, Image& result) {
  const Region region = source_region(how, target);
  assert(region.top >= 0 && region.top + region.height <= shape.height);
  assert(region.left >= 0 && region.left + region.width <= shape.width);
  const std::int64_t channels = shape.channels;
  target.channels = channels;
  horizontal_.set(how.columns, target.width, how.filter);
  vertical_.set(how.rows, target.height, how.filter);
  const std::int64_t values = target.width * channels;
  const std::int64_t line = round_up(values);
  // Before a strip is added, the lines of unfinished rows of the result are fewer than their taps.
  const std::int64_t lines = round_up(vertical_.count) + strip_rows;
  lines_.resize(static_cast<std::size_t>(lines * line));
  strip_.resize(static_cast<std::size_t>(region.width * channels * strip_rows));
  result.shape = target;
  result.pixels.resize(static_cast<std::size_t>(target.height * values));
  const auto* source = reinterpret_cast<const std::uint8_t*>(pixels.data()) +
                       (region.top * shape.width + region.left) * channels;
  auto* out = reinterpret_cast<std::uint8_t*>(result.pixels.data());

  vector_loops::run_with_width(strip_rows, [&](auto width) LOCKSTEP_INLINED {
    std::int64_t y = 0;
    for (std::int64_t top = 0; top < region.height; top += strip_rows) {
      std::array<const std::uint8_t*, strip_rows> rows;
      for (std::int64_t i = 0; i < strip_rows; ++i) {
        const std::int64_t row = std::min(top + i, region.height - 1);
        rows[static_cast<std::size_t>(i)] = source + row * shape.width * channels;
      }
      store_columns<width>(rows, region.width * channels, strip_.data());
      float* const sums = lines_.data() + top % lines * line;
      if (how.filter == ResampleFilter::bicubic) {
        resample_columns<width, true>(strip_.data(), horizontal_, channels, sums, line);
      } else {
        resample_columns<width, false>(strip_.data(), horizontal_, channels, sums, line);
      }
      for (; y < target.height; ++y) {
        const std::int64_t first = vertical_.first[static_cast<std::size_t>(y)];
        if (first + vertical_.count > top + strip_rows) break;
        row_lines_.clear();
        for (std::int64_t i = 0; i < vertical_.count; ++i) {
          row_lines_.push_back(lines_.data() + (first + i) % lines * line);
        }
        resample_row<width>(row_lines_, vertical_.weights_of(static_cast<std::size_t>(y)), values,
                            out + y * values);
      }
    }
  });
}

}  // namespace lockstep
