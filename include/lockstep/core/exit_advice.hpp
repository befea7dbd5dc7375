#pragma once

#include "lockstep/core/error.hpp"

#include <string>

namespace lockstep {

/// Whether to submit a command that ends with `status` again:
/// "(status 69: the same command would fail again)".
[[nodiscard]] std::string advice_after(ExitStatus status);

}  // namespace lockstep
