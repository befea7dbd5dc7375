#pragma once

#include <string>

namespace lockstep {

/// "0.1.0"
[[nodiscard]] std::string version();

}  // namespace lockstep
