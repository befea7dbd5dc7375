#pragma once

#include <string>

namespace lockstep {

/// Sets the algorithm of MPI's started all-reduce as choose_all_reduce() says, for all
/// communicators of this process. After MPI_Init; not collective, but all ranks come to the same,
/// unless their environments differ.
void set_mpi_all_reduce();

/// The MPI and the algorithm of its started all-reduce: "Open MPI 4.1.4, ring", or "MPICH 4.0.2"
/// where the algorithm is MPI's own choice. A sum's bits depend on both.
[[nodiscard]] std::string mpi_all_reduce();

}  // namespace lockstep
