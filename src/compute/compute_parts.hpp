#pragma once

#include "host_link.hpp"
#include "lockstep/compute/compute.hpp"

#include <memory>
#include <vector>

namespace lockstep {

/// What computing on CPUs and on GPUs have in common.

[[nodiscard]] inline Communicator& watched(const ComputeOptions& options, Communicator& arenas) {
  return options.watched ? options.watched(arenas) : arenas;
}

/// The network for each size of images.
[[nodiscard]] inline std::vector<const Graph*> all_sizes(const Graph& graph,
                                                         const ComputeOptions& options) {
  std::vector<const Graph*> graphs{&graph};
  graphs.insert(graphs.end(), options.resized.begin(), options.resized.end());
  return graphs;
}

[[nodiscard]] inline HostLinkOptions link_options(const ComputeOptions& options, CommChoice comm) {
  return {.comm = comm,
          .all_reduce = options.all_reduce,
          .progress = options.comm_progress,
          .cores = options.cores};
}

/// Computes on this rank's GPU by the module. Collective; errors as make_compute().
[[nodiscard]] std::unique_ptr<Compute> make_cuda_compute(const Graph& graph,
                                                         const ComputeOptions& options,
                                                         const ProcessGrid& grid,
                                                         Communicator& host);

}  // namespace lockstep
