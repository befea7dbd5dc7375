#pragma once

#include "lockstep/graph/ops.hpp"

#include <string>
#include <string_view>

namespace lockstep {

/// "conv2d", "batch_norm" and so on.
[[nodiscard]] std::string_view op_name(const Op& op);
/// The layer's name, or the op's if it has none.
[[nodiscard]] std::string layer_name(const Op& op);

}  // namespace lockstep
