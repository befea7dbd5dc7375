#pragma once

#include "lowering.hpp"

#include <memory>

namespace lockstep::gpu {

/// Fuses max pools into the norms whose ReLU's output they alone read, if the kernels support the
/// windows.
void fuse_pools(const Graph& graph, GraphAnalysis& analysis);

/// The lowering of such a norm, its ReLU and the pool.
[[nodiscard]] std::unique_ptr<Lowering> lower_pooled_norm(const BatchNorm& op, ValueId pool,
                                                          const LoweringContext& context);

}  // namespace lockstep::gpu
