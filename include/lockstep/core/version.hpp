#pragma once

#include <string>

namespace lockstep {

/// "0.9.0"
[[nodiscard]] std::string version();

}  // namespace lockstep
