#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/data/dataset.hpp"
#include "match_data.hpp"

#include <memory>

namespace lockstep {

/// The training split of --data, or --synthetic images. Collective.
[[nodiscard]] std::unique_ptr<Dataset> open_training_data(const Config& config, Communicator& comm);

/// The validation split of --val-data, with labels matched to the network's classes; null if there
/// is none. Error(usage) if it has more classes than the network. `config`: with the network's
/// number of classes, as in RunPlan. Collective.
[[nodiscard]] MatchedData open_validation_data(const Config& config, const ClassNames& network,
                                               Communicator& comm);

}  // namespace lockstep
