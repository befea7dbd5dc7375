#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

struct MpiCommunicatorOptions {
  /// Maximum elements per MPI call, since MPI counts are ints below 2^31. Tests use small values.
  std::size_t largest_piece = std::size_t{1} << 28;
};

/// Makes a communicator over all ranks of the job, with a separate MPI_Comm. Collective over them.
/// MpiEnvironment must outlive it.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(
    MpiCommunicatorOptions options = {});

}  // namespace lockstep
