#pragma once

#include "kernels.hpp"
#include "vec8_rows.hpp"

#include <cassert>
#include <cstdint>

/// Stochastic depth in the kernels of norms.
namespace lockstep::gpu {

/// The stochastic depth of a norm, or of the norm added to it: then the former has none.
[[nodiscard]] inline const SampleDrop& drop_of(const Normalization& norm,
                                               const Normalization* added) {
  assert(added == nullptr || !norm.drop.any());
  return added != nullptr ? added->drop : norm.drop;
}

/// Calls `loop` with whether samples are dropped as its template argument: a kernel has one loop
/// for each, so that stochastic depth costs the other nothing.
template <typename Loop>
LOCKSTEP_HOST_DEVICE void with_drops(const SampleDrop& drop, const Loop& loop) {
  if (drop.any()) {
    loop.template operator()<true>();
  } else {
    loop.template operator()<false>();
  }
}
/// Applies stochastic depth to a vec8 of a pixel of the batch.
LOCKSTEP_HOST_DEVICE inline void drop_samples(const SampleDrop& drop, std::int64_t pixel,
                                              Vec8& values) {
  const std::uint32_t sample = drop.rows.quotient(static_cast<std::uint32_t>(pixel));
  const float factor = drop.dropped.drops(sample, drop.block) ? 0.0F : drop.scale;
  for (int i = 0; i < vec8_size; ++i) values[i] *= factor;
}

}  // namespace lockstep::gpu
