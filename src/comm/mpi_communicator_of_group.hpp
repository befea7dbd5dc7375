#pragma once

#include "lockstep/comm/mpi_communicator.hpp"
#include "mpi_group.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

/// As make_mpi_communicator(), over the ranks of a group; collective over them.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator(
    std::unique_ptr<MpiGroup> group,
    std::size_t largest_piece = MpiCommunicatorOptions{}.largest_piece);

}  // namespace lockstep
