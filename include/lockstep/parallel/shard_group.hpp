#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/runtime/process_grid.hpp"

namespace lockstep {

/// Size of the shard group: all ranks; with --shard hybrid the ranks of a node, or --shard-group of
/// them. Collective; Error(usage) on all ranks where the groups would not be of equal size.
[[nodiscard]] int shard_group_size(const Config& config, const ProcessGrid& grid,
                                   Communicator& comm);

}  // namespace lockstep
