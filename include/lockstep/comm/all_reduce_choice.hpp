#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Inputs for choosing the algorithm of MPI_Iallreduce.
struct AllReduceFacts {
  int ranks = 1;
  /// Name of the value of Open MPI's parameter; nullopt: this MPI has no such parameter.
  std::optional<std::string> parameter = {};
  /// The environment sets the parameter; `mpirun --mca` does this too.
  bool in_environment = false;
};

/// Value of the parameter that lets Open MPI choose the algorithm.
inline constexpr std::string_view open_mpi_decides = "ignore";

/// Name of the value to set in Open MPI's parameter; nullopt: set nothing, because there is one
/// rank, the MPI has no such parameter, or the user set it.
///
/// For an in-place MPI_Iallreduce, Open MPI 4.1 and 5.0 choose a binomial tree
/// (ompi/mca/coll/libnbc/nbc_iallreduce.c): rank 0 sends and receives the whole buffer log2(ranks)
/// times. With Rabenseifner's algorithm or a ring, each rank sends 2 (ranks - 1) / ranks of the
/// buffer, the optimum. Rabenseifner's takes 2 log2(ranks) rounds, a ring 2 (ranks - 1). A round
/// needs MPI calls to progress, so fewer rounds overlap better with backward. If `ranks` is not a
/// power of two, Rabenseifner's also sends the whole buffer to and from each surplus rank, so a
/// ring is used. The number of nodes is ignored: a sum's bits must not depend on rank placement.
[[nodiscard]] std::optional<std::string_view> choose_all_reduce(const AllReduceFacts& facts);

/// "Open MPI 4.1.4" from MPI_Get_library_version(); for unknown formats, the text up to a comma.
[[nodiscard]] std::string mpi_name(std::string_view library_version);

}  // namespace lockstep
