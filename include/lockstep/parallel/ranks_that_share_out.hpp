#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/runtime/process_grid.hpp"

namespace lockstep {

/// How many ranks share the model out: all of them; with --shard hybrid those of a node, or
/// --shard-group of them. Collective; Error(usage) on all ranks where groups would not be equal.
[[nodiscard]] int ranks_that_share_out(const Config& config, const ProcessGrid& grid,
                                       Communicator& comm);

}  // namespace lockstep
