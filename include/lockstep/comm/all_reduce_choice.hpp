#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// What the algorithm of MPI's started all-reduce depends on.
struct AllReduceFacts {
  int ranks = 1;
  /// What Open MPI's parameter holds, by its name; nullopt: this MPI has no such parameter.
  std::optional<std::string> parameter = {};
  /// Whether the environment sets the parameter, as `mpirun --mca` does too.
  bool in_environment = false;
};

/// Value of Open MPI's parameter that leaves the algorithm to Open MPI.
inline constexpr std::string_view open_mpi_decides = "ignore";

/// The algorithm to set in Open MPI's parameter, by its name; nullopt: set nothing, since there is
/// one rank, the MPI has no such parameter, or the user set it.
///
/// Open MPI 4.1 and 5.0 decide for a binomial tree wherever a started all-reduce is in place
/// (ompi/mca/coll/libnbc/nbc_iallreduce.c): rank 0 sends and receives the whole buffer log2(ranks)
/// times. Both algorithms below send 2 (ranks - 1) / ranks of it from each rank, which is the
/// optimum. Rabenseifner's takes 2 log2(ranks) rounds, a ring 2 (ranks - 1); but where `ranks` is
/// no power of two, Rabenseifner's sends the whole buffer to and from each rank beyond one. A round
/// needs calls of MPI to move on, so fewer rounds hide more of the reduction behind backward.
/// The number of nodes does not count: the bits of a sum would depend on where ranks are.
[[nodiscard]] std::optional<std::string_view> choose_all_reduce(const AllReduceFacts& facts);

/// "Open MPI 4.1.4" from what MPI_Get_library_version() says; other MPIs' first line as it is.
[[nodiscard]] std::string mpi_name(std::string_view library_version);

}  // namespace lockstep
