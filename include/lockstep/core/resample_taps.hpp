#pragma once

#include "lockstep/core/host_device.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep {

/// Source pixels and weights of result pixel `at`, for bilinear resampling of `source` to `size`
/// pixels along one axis. Widens the filter when shrinking, as Pillow does. Hosts and devices
/// compute the same bits.
struct ResampleTaps {
  std::int64_t first;
  std::int64_t count;
  double centre;
  double radius;
  float sum;  ///< sum of the raw weights, which weight() divides by

  LOCKSTEP_HOST_DEVICE ResampleTaps(std::int64_t source, std::int64_t size, std::int64_t at) {
    const double scale = static_cast<double>(source) / static_cast<double>(size);
    radius = scale > 1.0 ? scale : 1.0;
    centre = (static_cast<double>(at) + 0.5) * scale;
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
  [[nodiscard]] static std::int64_t most(std::int64_t source, std::int64_t size) {
    const double scale = static_cast<double>(source) / static_cast<double>(size);
    return 2 * static_cast<std::int64_t>(std::ceil(scale > 1.0 ? scale : 1.0)) + 1;
  }

 private:
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double raw_weight(std::int64_t tap) const {
    const double offset = static_cast<double>(first + tap) + 0.5 - centre;
    const double weight = 1.0 - (offset < 0 ? -offset : offset) / radius;
    return weight > 0 ? weight : 0.0;
  }
};

/// Rounds a resampled value and clamps it to [0, 255]. The caller has already added 0.5 to `value`.
[[nodiscard]] LOCKSTEP_HOST_DEVICE inline std::uint8_t to_pixel(float value) {
  const float low = value > 0.0F ? value : 0.0F;
  return static_cast<std::uint8_t>(low < 255.0F ? low : 255.0F);
}

}  // namespace lockstep
