#pragma once

#include "lockstep/core/host_device.hpp"
#include "lockstep/core/image_resize.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep {

/// Source pixels and weights of result pixel `at`, for resampling of `source` to `size` pixels
/// along one axis. Widens the filter when shrinking, as Pillow does, whose bicubic filter has a =
/// -0.5. Hosts and devices compute the same bits.
struct ResampleTaps {
  std::int64_t first;
  std::int64_t count;
  double centre;
  double scale;  ///< source pixels between two taps of the unwidened filter
  ResampleFilter filter;
  float sum;  ///< sum of the raw weights, which weight() divides by

  LOCKSTEP_HOST_DEVICE ResampleTaps(std::int64_t source, std::int64_t size, std::int64_t at,
                                    ResampleFilter with)
      : filter(with) {
    const double step = static_cast<double>(source) / static_cast<double>(size);
    scale = step > 1.0 ? step : 1.0;
    const double radius = filter == ResampleFilter::bicubic ? 2.0 * scale : scale;
    centre = (static_cast<double>(at) + 0.5) * step;
    const std::int64_t begin = std::llround(centre - radius);
    const std::int64_t end = std::llround(centre + radius);
    first = begin > 0 ? begin : 0;
    count = (end < source ? end : source) - first;
    double total = 0;
    for (std::int64_t tap = 0; tap < count; ++tap) total += raw_weight(tap);
    sum = static_cast<float>(total);
  }
  /// Weight of source pixel first + tap.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float weight(std::int64_t tap) const {
    return static_cast<float>(raw_weight(tap)) / sum;
  }
  /// Upper bound of `count` for any pixel.
  [[nodiscard]] static std::int64_t most(std::int64_t source, std::int64_t size,
                                         ResampleFilter filter) {
    const double step = static_cast<double>(source) / static_cast<double>(size);
    const double scale = step > 1.0 ? step : 1.0;
    const double radius = filter == ResampleFilter::bicubic ? 2.0 * scale : scale;
    return 2 * static_cast<std::int64_t>(std::ceil(radius)) + 1;
  }

 private:
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double raw_weight(std::int64_t tap) const {
    const double offset = static_cast<double>(first + tap) + 0.5 - centre;
    const double x = (offset < 0 ? -offset : offset) / scale;
    if (filter == ResampleFilter::bilinear) return x < 1.0 ? 1.0 - x : 0.0;
    if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1.0;
    return x < 2.0 ? ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0 : 0.0;
  }
};

/// Clamps the sum of a row's taps to [0, 255], as Pillow does between the passes. The bicubic
/// filter, whose weights may be negative, needs it.
[[nodiscard]] LOCKSTEP_HOST_DEVICE inline float clamp_sum(float value) {
  const float low = value > 0.0F ? value : 0.0F;
  return low < 255.0F ? low : 255.0F;
}

/// Rounds a resampled value and clamps it to [0, 255]. The caller has already added 0.5 to `value`.
[[nodiscard]] LOCKSTEP_HOST_DEVICE inline std::uint8_t to_pixel(float value) {
  return static_cast<std::uint8_t>(clamp_sum(value));
}

}  // namespace lockstep
