#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/config/option_table.hpp"

namespace lockstep {

/// The first options of train, in the order of --help: what is learned, and how (model, data,
/// training, optimizer). train_options() adds the others.
void add_learning_options(OptionTable<Config>& t);

/// Error(usage) if one source sets both options of an exclusive pair.
void refuse_both(const Config& config, const std::string& where);

}  // namespace lockstep
