#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/runtime/memory_limit.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Error(usage) where a rank may not take the memory that its parameters, gradients and optimizer
/// state need, with both numbers and the --shard that would fit. `ranks`: how many share the model
/// out, if they do. What ranks share a limit of is held against what they need in the mean on rank
/// 0's host. Pure.
void require_memory(const Config& config, const Graph& graph, int ranks,
                    std::span<const MemoryLimit> limits);

/// The same on all ranks, where one of them may not; collective. What this rank may take.
[[nodiscard]] std::vector<MemoryLimit> require_memory(const Config& config, const Graph& graph,
                                                      int ranks, const ProcessGrid& grid,
                                                      Communicator& comm);

/// Of a program that is compiled, and has not run.
struct ActivationNeeds {
  std::size_t bytes = 0;
  std::int64_t samples = 0;  ///< of its batch
};
/// Error(usage) where that is too much beside what require_memory() counts, within the limits that
/// it found. Pure.
void require_activations(const Config& config, const Graph& graph, int ranks,
                         std::span<const MemoryLimit> limits, const ActivationNeeds& needs);

}  // namespace lockstep
