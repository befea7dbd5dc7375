#pragma once

#include "kernels.hpp"

/// A batch norm with a ReLU whose output a max pool alone reads, computed without storing that
/// output or its gradient. Values are bit-identical to those of the separate kernels.
namespace lockstep::gpu {

/// Windows of the pools that these kernels compute.
[[nodiscard]] inline bool pools_with_norm(std::int64_t kernel, std::int64_t stride,
                                          std::int64_t padding) {
  return kernel == 3 && stride == 2 && padding == 1;
}

/// y = max pool of the ReLU of the norm of x. `positions`, if not null, receives one byte per value
/// of y, for the functions below: the maximum's place in its window, and whether it is above 0.
void pooled_norm_forward(Stream stream, DataType type, const PoolExtent& extent, const void* x,
                         const Normalization& norm, void* y, std::uint8_t* positions);

struct PooledGradient {
  const void* dy;
  const std::uint8_t* positions;
};
/// batch_norm_backward_sums() of the gradient that the pool and the ReLU pass on.
void pooled_norm_backward_sums(Stream stream, DataType type, const PoolExtent& extent,
                               const PooledGradient& incoming, const NormSums& of, void* workspace);
/// batch_norm_backward_apply() of that gradient.
void pooled_norm_backward_apply(Stream stream, DataType type, const PoolExtent& extent,
                                const PooledGradient& incoming, double elements,
                                const NormGradient& of);

}  // namespace lockstep::gpu
