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
  return drop.dropped.drops(sample, drop.block) ? 0.0F : drop.scale;
}

/// Applies stochastic depth to a vec8 of a pixel.
LOCKSTEP_HOST_DEVICE inline void drop_samples(const SampleDrop& drop, std::int64_t pixel,
                                              Vec8& values) {
  const float factor = factor_of_pixel(drop, pixel);
  for (int i = 0; i < vec8_size; ++i) values[i] *= factor;
}

}  // namespace lockstep::gpu
