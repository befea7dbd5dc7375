#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/runtime/process_grid.hpp"

namespace lockstep {

/// Size of the shard group: all ranks; with --shard hybrid --shard-group, or the ranks of a node.
/// Collective; Error(usage) on all ranks if groups would differ in size.
[[nodiscard]] int shard_group_size(const Config& config, const ProcessGrid& grid,
                                   Communicator& comm);

}  // namespace lockstep
