#pragma once

#include "lockstep/models/models.hpp"

#include <vector>

namespace lockstep {

/// The program `lockstep`, with its commands, options and exit status, which also know these
/// models.
[[nodiscard]] int run_program(int argc, char** argv, std::vector<OwnModel> models = {});

}  // namespace lockstep
