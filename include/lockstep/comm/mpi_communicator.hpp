#pragma once

#include "lockstep/comm/communicator.hpp"

#include <memory>

namespace lockstep {

/// Over all ranks of the job, on a duplicate of MPI_COMM_WORLD. MpiEnvironment outlives it.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator();

}  // namespace lockstep
