#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

struct MpiCommunicatorOptions {
  /// Elements in one MPI call, at most: counts there are ints, below 2^31. Tests make it small.
  std::size_t largest_piece = std::size_t{1} << 28;
};

/// Over all ranks of the job, on a duplicate of MPI_COMM_WORLD. MpiEnvironment outlives it.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(
    MpiCommunicatorOptions options = {});

}  // namespace lockstep
