#pragma once

#include "lockstep/models/models.hpp"

#include <vector>

namespace lockstep {

/// Runs `lockstep` with all its commands, which also accept these models. Returns the exit status.
[[nodiscard]] int run_program(int argc, char** argv, std::vector<OwnModel> models = {});

}  // namespace lockstep
