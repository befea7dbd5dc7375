#pragma once

#include "lockstep/comm/communicator.hpp"
#include "mpi_group.hpp"

#include <memory>

namespace lockstep {

/// The group of a communicator that a split of an MPI communicator made, for other messages.
[[nodiscard]] std::unique_ptr<MpiGroup> mpi_group_of(std::unique_ptr<Communicator> comm);

}  // namespace lockstep
