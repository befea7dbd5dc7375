#pragma once

#include "lowering.hpp"

#include <memory>

namespace lockstep::gpu {

/// The lowering of a norm with its ReLU and the max pool after that.
[[nodiscard]] std::unique_ptr<Lowering> lower_pooled_norm(const BatchNorm& op,
                                                          const LoweringContext& context);

}  // namespace lockstep::gpu
