#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/runtime/memory_limit.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <span>

namespace lockstep {

/// Error(usage) where a rank may not take the memory that its parameters, gradients and optimizer
/// state need, with both numbers and the --shard that would fit. `ranks`: how many share the model
/// out, if they do. What ranks share a limit of is held against what they need in the mean on rank
/// 0's host. Pure.
void require_memory(const Config& config, const Graph& graph, int ranks,
                    std::span<const MemoryLimit> limits);

/// The same on all ranks, where one of them may not; collective.
void require_memory(const Config& config, const Graph& graph, int ranks, const ProcessGrid& grid,
                    Communicator& comm);

}  // namespace lockstep
