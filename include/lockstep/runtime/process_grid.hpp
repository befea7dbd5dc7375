#pragma once

#include "lockstep/comm/communicator.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Where this rank is; from MPI itself (MPI_Comm_split_type), not from environment variables.
struct ProcessGrid {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  std::string host;
};
/// Collective; a grid of one where MPI has not been started.
[[nodiscard]] ProcessGrid make_process_grid();

/// Cores for this rank's threads.
struct ThreadBinding {
  int threads = 1;               ///< per rank
  std::vector<int> cores;        ///< the cores this rank's threads are pinned to, one each
  std::string text;              ///< "2 threads on cores 0-1"
  std::optional<std::string> warning;  ///< one core is all the rank got on a larger node
};
/// Affinity mask's size divided by the number of local ranks whose masks overlap, at least one;
/// `requested` > 0 overrides. Pins the OpenMP threads of the calling thread. Collective.
[[nodiscard]] ThreadBinding bind_threads(const ProcessGrid& grid, Communicator& comm, int requested);

}  // namespace lockstep
