#pragma once

#include <string>

namespace lockstep {

/// This rank's place in the job, from MPI (MPI_Comm_split_type), not from environment variables.
struct ProcessGrid {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  std::string host;
};
/// Collective. Returns a grid of one rank if MPI has not been initialized.
[[nodiscard]] ProcessGrid make_process_grid();

}  // namespace lockstep
