#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <memory>
#include <optional>

namespace lockstep {

struct MpiCommunicatorOptions {
  /// Elements in one MPI call, at most: counts there are ints, below 2^31. Tests make it small.
  std::size_t largest_piece = std::size_t{1} << 28;
  /// Over the ranks that give the same number, in their order, instead of over all.
  std::optional<int> color = {};
};

/// Over the ranks of the job, on a communicator of its own. Collective over all ranks.
/// MpiEnvironment outlives it.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(
    MpiCommunicatorOptions options = {});

}  // namespace lockstep
