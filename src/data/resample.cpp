#include "lockstep/data/resample.hpp"

#include "lockstep/core/resample_taps.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace lockstep {

Region centre_region(const ImageShape& image, std::int64_t height, std::int64_t width) noexcept {
  const auto margin = [](std::int64_t outer, std::int64_t inner) {
    return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(outer - inner) / 2.0));
  };
  return {.top = margin(image.height, height),
          .left = margin(image.width, width),
          .height = height,
          .width = width};
}

ImageShape short_side_shape(const ImageShape& image, std::int64_t short_side) noexcept {
  const std::int64_t shortest = std::min(image.height, image.width);
  return {.channels = image.channels,
          .height = image.height * short_side / shortest,
          .width = image.width * short_side / shortest};
}

void Resampler::set_taps(Taps& taps, std::int64_t source, std::int64_t size) {
  taps.longest = ResampleTaps::most(source, size);
  taps.first.resize(static_cast<std::size_t>(size));
  taps.count.resize(static_cast<std::size_t>(size));
  taps.weights.resize(static_cast<std::size_t>(size * taps.longest));
  for (std::int64_t i = 0; i < size; ++i) {
    const ResampleTaps of_pixel(source, size, i);
    float* weights = taps.weights.data() + i * taps.longest;
    for (std::int64_t tap = 0; tap < of_pixel.count; ++tap) weights[tap] = of_pixel.weight(tap);
    taps.first[static_cast<std::size_t>(i)] = of_pixel.first;
    taps.count[static_cast<std::size_t>(i)] = of_pixel.count;
  }
}

void Resampler::resize(std::span<const std::byte> pixels, const ImageShape& shape,
                       const Region& region, ImageShape target, Image& result) {
  assert(region.top >= 0 && region.top + region.height <= shape.height);
  assert(region.left >= 0 && region.left + region.width <= shape.width);
  const std::int64_t channels = shape.channels;
  target.channels = channels;
  set_taps(horizontal_, region.width, target.width);
  set_taps(vertical_, region.height, target.height);
  const std::int64_t line = target.width * channels;
  rows_.resize(static_cast<std::size_t>(region.height * line));
  line_.resize(static_cast<std::size_t>(line));
  const auto* source = reinterpret_cast<const std::uint8_t*>(pixels.data());

  for (std::int64_t y = 0; y < region.height; ++y) {
    const std::uint8_t* row = source + ((region.top + y) * shape.width + region.left) * channels;
    float* out = rows_.data() + y * line;
    for (std::int64_t x = 0; x < target.width; ++x) {
      const auto tap = static_cast<std::size_t>(x);
      const float* weights = horizontal_.weights.data() + x * horizontal_.longest;
      const std::uint8_t* from = row + horizontal_.first[tap] * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (std::int64_t j = 0; j < horizontal_.count[tap]; ++j) {
          sum += weights[j] * static_cast<float>(from[j * channels + c]);
        }
        *out++ = sum;
      }
    }
  }

  result.shape = target;
  result.pixels.resize(static_cast<std::size_t>(target.height * line));
  auto* out = reinterpret_cast<std::uint8_t*>(result.pixels.data());
  for (std::int64_t y = 0; y < target.height; ++y) {
    const auto tap = static_cast<std::size_t>(y);
    std::fill(line_.begin(), line_.end(), 0.5F);  // so that to_pixel() rounds
    for (std::int64_t j = 0; j < vertical_.count[tap]; ++j) {
      const float weight = vertical_.weights[static_cast<std::size_t>(y * vertical_.longest + j)];
      const float* row = rows_.data() + (vertical_.first[tap] + j) * line;
      for (std::int64_t i = 0; i < line; ++i) line_[static_cast<std::size_t>(i)] += weight * row[i];
    }
    for (std::int64_t i = 0; i < line; ++i) {
      *out++ = to_pixel(line_[static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace lockstep
