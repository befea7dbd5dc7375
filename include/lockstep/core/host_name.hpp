#pragma once

#include <string>

namespace lockstep {

/// As gethostname() tells it; empty if it does not.
[[nodiscard]] std::string host_name();

}  // namespace lockstep
