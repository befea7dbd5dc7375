#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/runtime/memory_limit.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Error(usage) if parameters, gradients and optimizer state exceed a rank's memory limit, with
/// both numbers and a --shard that fits. `ranks`: size of the shard group. A limit that several
/// ranks share is compared with their mean need on rank 0's host. Pure.
void require_memory(const Config& config, const Graph& graph, int ranks,
                    std::span<const MemoryLimit> limits);

/// The same check on all ranks with this machine's limits; collective, fails on all ranks if it
/// fails on one. Returns this rank's limits.
[[nodiscard]] std::vector<MemoryLimit> require_memory(const Config& config, const Graph& graph,
                                                      int ranks, const ProcessGrid& grid,
                                                      Communicator& comm);

/// Memory for activations of a compiled program that has not run.
struct ActivationNeeds {
  std::size_t bytes = 0;
  std::int64_t samples = 0;  ///< of its batch
};
/// Error(usage) if `needs`, added to what require_memory() counts, exceeds one of its limits. Pure.
void require_activations(const Config& config, const Graph& graph, int ranks,
                         std::span<const MemoryLimit> limits, const ActivationNeeds& needs);

}  // namespace lockstep
