#pragma once

#include "lockstep/core/error.hpp"

namespace lockstep {

/// The exception that is being handled, as an Error: itself if it is one, else Error(internal) with
/// its text. If memory ran out, or a thread could not start, the text says so, and names the limit
/// if there is one; then the same job fails again, so the status is `usage`.
[[nodiscard]] Error current_error();

}  // namespace lockstep
