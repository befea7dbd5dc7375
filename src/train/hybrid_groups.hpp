#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <memory>

namespace lockstep {

/// How many ranks share the model out: all of them; with --shard hybrid those of a node, or
/// --shard-group of them. Collective; Error(usage) on all ranks where groups would not be equal.
[[nodiscard]] int ranks_that_share_out(const Config& config, const ProcessGrid& grid,
                                       Communicator& comm);

/// The communicators of --shard hybrid.
struct HybridGroups {
  std::unique_ptr<Communicator> group;     ///< ranks one after another
  std::unique_ptr<Communicator> replicas;  ///< the ranks of the same place in each group
};
/// Collective; empty for the other modes.
[[nodiscard]] HybridGroups make_hybrid_groups(const Config& config, int group_size, int rank);

}  // namespace lockstep
