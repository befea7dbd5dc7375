#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/runtime/process_grid.hpp"

namespace lockstep {

/// Error(usage) on all ranks where a rank may not take the memory that its parameters, gradients
/// and optimizer state need, with both numbers and the --shard that would fit; collective. `ranks`:
/// how many share the model out, if they do.
void require_memory(const Config& config, const Graph& graph, int ranks, const ProcessGrid& grid,
                    Communicator& comm);

}  // namespace lockstep
