#pragma once

#include "kernels.hpp"
#include "row_reduction.hpp"

namespace lockstep::gpu {

/// The second kernel of batch_norm_backward_sums() without an added norm: the gradients of a norm's
/// parameters, from the sums over g and over g * (x - mean) of all chunks in `workspace`.
void combine_gradients(Stream stream, const RowReduction& reduction, const NormSums& of,
                       const void* workspace);

}  // namespace lockstep::gpu
