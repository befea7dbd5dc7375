#pragma once

#include "lowering.hpp"

#include <memory>

namespace lockstep::cpu {

/// Lowers a linear layer of the channels of each pixel.
[[nodiscard]] std::unique_ptr<Lowering> lower_linear_of_pixels(const Linear& op,
                                                               const LoweringContext& context);

}  // namespace lockstep::cpu
