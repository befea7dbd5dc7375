#pragma once

#include "kernels.hpp"
#include "vec8_rows.hpp"

#include <cstdint>

/// Stochastic depth in the kernels of norms.
namespace lockstep::gpu {

/// Whether a norm or the norm added to it drops samples.
[[nodiscard]] inline bool drops_samples(const Normalization& norm, const Normalization* added) {
  return norm.drop.rows != 0 || (added != nullptr && added->drop.rows != 0);
}

/// The factor on a pixel of the batch; 1 without stochastic depth.
LOCKSTEP_HOST_DEVICE inline float factor_of_pixel(const SampleDrop& drop, std::int64_t pixel) {
  if (drop.rows == 0) return 1.0F;
  const std::int64_t sample{static_cast<std::uint32_t>(pixel) /
                            static_cast<std::uint32_t>(drop.rows)};
  // In a folded matrix, the last pixel may be missing.
  if (sample >= drop.samples) return drop.scale;
  return drop.dropped.drops(sample, drop.block) ? 0.0F : drop.scale;
}

/// Applies stochastic depth to a vec8 of a row.
template <typename T>
LOCKSTEP_HOST_DEVICE void drop_samples(const Vec8Rows& extent, const SampleDrop& drop,
                                       std::int64_t row, std::int64_t at, Vec8& values) {
  if constexpr (packed_size<T> == vec8_size) {
    const float factor = factor_of_pixel(drop, row);
    for (int i = 0; i < vec8_size; ++i) values[i] *= factor;
  } else {
    // Two rows of a folded matrix may be of different samples.
    const auto factor = [&](std::int64_t position) {
      const bool folded = extent.width != extent.padded;
      return factor_of_pixel(drop, folded ? 2 * row + (position >= extent.padded ? 1 : 0) : row);
    };
    const float low = factor(at);
    const float high = factor(at + vec8_size / 2);
    for (int i = 0; i < vec8_size; ++i) values[i] *= i < vec8_size / 2 ? low : high;
  }
}

}  // namespace lockstep::gpu
