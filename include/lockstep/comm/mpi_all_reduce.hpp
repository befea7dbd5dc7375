#pragma once

#include <string>

namespace lockstep {

/// Sets the MPI_Iallreduce algorithm that choose_all_reduce() returns, for all communicators of
/// this process. Call it only if MPI reduces gradients, once communicators exist: Open MPI makes a
/// communicator by all-reduces of one value, which a ring would pass through all ranks. Not
/// collective, but all ranks choose the same algorithm unless their environments differ.
void set_mpi_all_reduce();

/// The MPI and its MPI_Iallreduce algorithm: "Open MPI 4.1.4, ring", or "MPICH 4.0.2" if MPI
/// chooses the algorithm. The bits of a sum depend on both.
[[nodiscard]] std::string mpi_all_reduce();

}  // namespace lockstep
