#pragma once

#include <string>

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

}  // namespace lockstep
