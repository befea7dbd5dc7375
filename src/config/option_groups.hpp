#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/config/option_table.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// The first options of train, in the order of --help: what is learned, and how (model, data,
/// training, optimizer). train_options() adds the others.
void add_learning_options(OptionTable<Config>& t);

/// Error(usage) if one source sets both options of an exclusive pair.
void refuse_both(const Config& config, const std::string& where);

/// Names of the optimizers with a trait; null: of all.
[[nodiscard]] std::vector<std::string> optimizers(bool OptimizerTraits::*trait = nullptr);

}  // namespace lockstep
