#include "lockstep/data/image_ops.hpp"

#include "image_values.hpp"
#include "lockstep/core/vector_types.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

using Table = std::array<std::uint8_t, 256>;

/// first + factor * (second - first), cut to 0 to 255 and rounded down.
std::uint8_t blend(int first, int second, float factor) noexcept {
  const float value = static_cast<float>(first) + factor * static_cast<float>(second - first);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

// GCC 12 converts vectors value by value, unless a value's size stays the same, doubles or halves.

template <int width>
LOCKSTEP_INLINED inline typename VectorTypes<width>::Ints load_ints(const std::uint8_t* from) {
  using Types = VectorTypes<width>;
  return __builtin_convertvector(
      __builtin_convertvector(load_bytes<typename Types::Bytes>(from), typename Types::Halves),
      typename Types::Ints);
}

template <int width>
LOCKSTEP_INLINED inline void store_ints(const typename VectorTypes<width>::Ints& values,
                                        std::uint8_t* to) {
  using Types = VectorTypes<width>;
  store_bytes(__builtin_convertvector(__builtin_convertvector(values, typename Types::Halves),
                                      typename Types::Bytes),
              to);
}

/// Blends `count` values of `first`, which may be `out`, with those of `second`.
template <int width>
LOCKSTEP_INLINED inline void blend_values(const std::uint8_t* first, const std::uint8_t* second,
                                          float factor, std::int64_t count, std::uint8_t* out) {
  using Types = VectorTypes<width>;
  using Float = typename Types::Float;
  std::int64_t i = 0;
  for (; i + width <= count; i += width) {
    const auto from = load_ints<width>(first + i);
    Float value = __builtin_convertvector(from, Float) +
                  factor * __builtin_convertvector(load_ints<width>(second + i) - from, Float);
    value = value > 0.0F ? value : Float{};
    value = value < 255.0F ? value : Float{} + 255.0F;
    store_ints<width>(__builtin_convertvector(value, typename Types::Ints), out + i);
  }
  for (; i < count; ++i) out[i] = blend(first[i], second[i], factor);
}

/// The mean of 3x3 values, the centre counted five times, rounded. `line`: values in a row.
/// (sum + 6) * 5042 / 2^16 is (sum + 6) / 13 for all sums, and these are never halfway between two
/// multiples of 13.
template <typename Ints, typename Load>
LOCKSTEP_INLINED inline Ints smooth(const std::uint8_t* at, std::int64_t line,
                                    std::int64_t channels, const Load& load) {
  Ints sum = load(at) * 4 + 6;
  for (const std::uint8_t* row : {at - line, at, at + line}) {
    sum += load(row - channels) + load(row) + load(row + channels);
  }
  return sum * 5042 >> 16;
}

/// The grey of ITU-R BT.601, in 16-bit fixed point.
int grey_of(const std::uint8_t* rgb) noexcept {
  return (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16;
}

/// Replaces all values by those of a table.
void look_up(Image& image, const Table& table) noexcept {
  std::uint8_t* const values = values_of(image);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) values[i] = table[values[i]];
}

/// A table for each channel of an image.
using ChannelTables = std::array<Table, 3>;
void look_up(Image& image, const ChannelTables& tables) noexcept {
  if (image.shape.channels == 1) return look_up(image, tables[0]);
  std::uint8_t* const end = values_of(image) + image.pixels.size();
  for (std::uint8_t* pixel = values_of(image); pixel != end; pixel += 3) {
    pixel[0] = tables[0][pixel[0]];
    pixel[1] = tables[1][pixel[1]];
    pixel[2] = tables[2][pixel[2]];
  }
}

using Histogram = std::array<std::int64_t, 256>;
std::array<Histogram, 3> histograms_of(const Image& image) noexcept {
  const auto channels = static_cast<std::size_t>(image.shape.channels);
  std::array<Histogram, 3> counts{};
  const std::uint8_t* const end = values_of(image) + image.pixels.size();
  for (const std::uint8_t* pixel = values_of(image); pixel != end; pixel += channels) {
    for (std::size_t c = 0; c < channels; ++c) ++counts[c][pixel[c]];
  }
  return counts;
}

Table identity() noexcept {
  Table table;
  std::iota(table.begin(), table.end(), std::uint8_t{0});
  return table;
}

/// Mixes the values with one grey.
void blend_with(Image& image, int grey, double factor) noexcept {
  Table table;
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = blend(grey, static_cast<int>(i), static_cast<float>(factor));
  }
  look_up(image, table);
}

Table stretched(const Histogram& counts) noexcept {
  int lowest = 0;
  int highest = 255;
  while (lowest < 255 && counts[static_cast<std::size_t>(lowest)] == 0) ++lowest;
  while (highest > 0 && counts[static_cast<std::size_t>(highest)] == 0) --highest;
  if (highest <= lowest) return identity();
  const double scale = 255.0 / (highest - lowest);
  const double offset = -lowest * scale;
  Table table;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double value = static_cast<double>(i) * scale + offset;
    table[i] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
  }
  return table;
}

Table equalized(const Histogram& counts) noexcept {
  std::int64_t all = 0;
  std::int64_t of_highest = 0;
  for (const std::int64_t count : counts) {
    all += count;
    if (count != 0) of_highest = count;
  }
  const std::int64_t step = (all - of_highest) / 255;
  if (step == 0) return identity();
  Table table;
  std::int64_t below = step / 2;
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::uint8_t>(std::min<std::int64_t>(below / step, 255));
    below += counts[i];
  }
  return table;
}

void map_channels(Image& image, Table (*table_of)(const Histogram&) noexcept) noexcept {
  const std::array<Histogram, 3> counts = histograms_of(image);
  ChannelTables tables;
  const auto channels = static_cast<std::size_t>(image.shape.channels);
  for (std::size_t c = 0; c < channels; ++c) tables[c] = table_of(counts[c]);
  look_up(image, tables);
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  blend_with(image, 0, factor);
}

void adjust_contrast(Image& image, double factor) {
  const std::uint8_t* const values = values_of(image);
  const std::int64_t pixels = image.shape.height * image.shape.width;
  std::int64_t sum = 0;
  if (image.shape.channels == 1) {
    for (std::int64_t i = 0; i < pixels; ++i) sum += values[i];
  } else {
    for (std::int64_t i = 0; i < pixels; ++i) sum += grey_of(values + 3 * i);
  }
  const std::int64_t mean = (2 * sum + pixels) / (2 * pixels);  // rounded
  blend_with(image, static_cast<int>(mean), factor);
}

void adjust_color(Image& image, double factor) {
  if (image.shape.channels == 1) return;
  const auto weight = static_cast<float>(factor);
  vector_loops::run_with_width(16, [&](auto width) LOCKSTEP_INLINED {
    // The greys of some pixels, three times each.
    std::array<std::uint8_t, 192> greys;
    const std::int64_t size = std::ssize(image.pixels);
    for (std::int64_t begin = 0; begin < size; begin += std::ssize(greys)) {
      std::uint8_t* const values = values_of(image) + begin;
      const std::int64_t count = std::min(size - begin, std::ssize(greys));
      for (std::int64_t i = 0; i < count; i += 3) {
        std::fill_n(greys.data() + i, 3, static_cast<std::uint8_t>(grey_of(values + i)));
      }
      blend_values<width>(greys.data(), values, weight, count, values);
    }
  });
}

void adjust_sharpness(const Image& image, double factor, Image& result) {
  take_shape(image, result);
  std::ranges::copy(image.pixels, result.pixels.begin());
  const std::int64_t channels = image.shape.channels;
  const std::int64_t line = image.shape.width * channels;
  const std::int64_t inner = line - 2 * channels;
  const auto weight = static_cast<float>(factor);
  vector_loops::run_with_width(16, [&](auto width) LOCKSTEP_INLINED {
    for (std::int64_t y = 1; y < image.shape.height - 1; ++y) {
      const std::uint8_t* const row = values_of(image) + y * line + channels;
      std::uint8_t* const out = values_of(result) + y * line + channels;
      std::int64_t i = 0;
      for (; i + width <= inner; i += width) {
        using Ints = typename VectorTypes<width>::Ints;
        store_ints<width>(smooth<Ints>(row + i, line, channels, load_ints<width>), out + i);
      }
      for (; i < inner; ++i) {
        const auto load = [](const std::uint8_t* from) LOCKSTEP_INLINED { return int{*from}; };
        out[i] = static_cast<std::uint8_t>(smooth<int>(row + i, line, channels, load));
      }
      blend_values<width>(out, row, weight, std::max<std::int64_t>(inner, 0), out);
    }
  });
}

void posterize(Image& image, int bits) {
  assert(bits >= 1 && bits <= 8);
  const auto mask = static_cast<std::byte>(0xFF << (8 - bits));
  for (std::byte& value : image.pixels) value &= mask;
}

void solarize(Image& image, double threshold) {
  Table table = identity();
  for (std::uint8_t& value : table) {
    if (value >= threshold) value = static_cast<std::uint8_t>(255 - value);
  }
  look_up(image, table);
}

void autocontrast(Image& image) {
  map_channels(image, stretched);
}

void equalize(Image& image) {
  map_channels(image, equalized);
}

}  // namespace lockstep
