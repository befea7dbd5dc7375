#include "lockstep/runtime/process_grid.hpp"

#include <mpi.h>

#include <array>

namespace lockstep {

ProcessGrid make_process_grid() {
  ProcessGrid grid;
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return grid;
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  grid.host.assign(name.data(), static_cast<std::size_t>(length));
  MPI_Comm_rank(MPI_COMM_WORLD, &grid.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &grid.world_size);

  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, grid.rank, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &grid.local_rank);
  MPI_Comm_size(local, &grid.local_size);

  // Nodes are numbered in the order of their first ranks.
  MPI_Comm leaders = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, grid.local_rank == 0 ? 0 : MPI_UNDEFINED, grid.rank, &leaders);
  std::array<int, 2> node{0, 1};
  if (leaders != MPI_COMM_NULL) {
    MPI_Comm_rank(leaders, &node[0]);
    MPI_Comm_size(leaders, &node[1]);
    MPI_Comm_free(&leaders);
  }
  MPI_Bcast(node.data(), 2, MPI_INT, 0, local);
  MPI_Comm_free(&local);
  grid.node = node[0];
  grid.nodes = node[1];
  return grid;
}

}  // namespace lockstep
