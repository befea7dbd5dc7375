#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <memory>
#include <optional>

namespace lockstep {

struct MpiCommunicatorOptions {
  /// Maximum elements per MPI call, since MPI counts are ints below 2^31. Tests use small values.
  std::size_t largest_piece = std::size_t{1} << 28;
  /// Color for MPI_Comm_split, in job rank order; nullopt: all ranks.
  std::optional<int> color = {};
};

/// Makes a communicator with a separate MPI_Comm. Collective over all ranks of the job.
/// MpiEnvironment must outlive it.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(
    MpiCommunicatorOptions options = {});

}  // namespace lockstep
