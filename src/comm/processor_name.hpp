#pragma once

#include <string>

namespace lockstep {

/// The host's name, as MPI knows it.
[[nodiscard]] std::string processor_name();

}  // namespace lockstep
