#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/config/option_table.hpp"

namespace lockstep {

// The options of train, in the order of --help.

/// What is learned, and how: model, data, training, optimizer.
void add_learning_options(OptionTable<Config>& t);
/// The last of these groups.
void add_optimizer_options(OptionTable<Config>& t);
/// How a run goes: communication, run, faults, machine.
void add_running_options(OptionTable<Config>& t);

/// Error(usage) if options of local SGD do not fit each other or the rest; validate() calls it.
void validate_local_sgd(const Config& config);

}  // namespace lockstep
