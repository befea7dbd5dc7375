#pragma once

namespace lockstep {

/// The program `lockstep`, with its commands, options and exit status. A program that calls
/// add_model() first has all of them for its own models, too.
[[nodiscard]] int run_program(int argc, char** argv);

}  // namespace lockstep
