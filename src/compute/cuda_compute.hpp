#pragma once

#include "lockstep/compute/compute.hpp"

#include <memory>

namespace lockstep {

/// Computes on this rank's GPU by the module. Collective; errors as make_compute().
[[nodiscard]] std::unique_ptr<Compute> make_cuda_compute(const Graph& graph,
                                                         const ComputeOptions& options,
                                                         const ProcessGrid& grid,
                                                         Communicator& host);

}  // namespace lockstep
