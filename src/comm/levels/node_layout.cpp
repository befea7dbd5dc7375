#include "node_layout.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <map>

namespace lockstep {

NodeLayout node_layout(std::span<const int> node_of, int rank) {
  std::map<int, std::vector<int>> ranks_on;  // ascending, by node
  for (std::size_t i = 0; i < node_of.size(); ++i) {
    ranks_on[node_of[i]].push_back(static_cast<int>(i));
  }
  const std::vector<int>& here = ranks_on[node_of[static_cast<std::size_t>(rank)]];
  const auto local = static_cast<std::size_t>(std::ranges::find(here, rank) - here.begin());
  NodeLayout layout{.nodes = static_cast<int>(ranks_on.size()),
                    .ranks_per_node = static_cast<int>(here.size()),
                    .is_consecutive = true,
                    .local_rank = static_cast<int>(local),
                    .first_on_node = here.front(),
                    .first_of_peers = rank};
  for (const auto& [node, ranks] : ranks_on) {
    if (ranks.size() != here.size()) layout.ranks_per_node = 0;
    if (ranks.back() - ranks.front() + 1 != static_cast<int>(ranks.size())) {
      layout.is_consecutive = false;
    }
    if (local < ranks.size()) layout.first_of_peers = std::min(layout.first_of_peers, ranks[local]);
  }
  return layout;
}

int first_rank_on_node(const MpiGroup& group) {
  MPI_Comm node = MPI_COMM_NULL;
  group.check(
      MPI_Comm_split_type(group.get(), MPI_COMM_TYPE_SHARED, group.rank(), MPI_INFO_NULL, &node),
      "MPI_Comm_split_type");
  int first = group.rank();
  group.check(MPI_Bcast(&first, 1, MPI_INT, 0, node), "MPI_Bcast");
  MPI_Comm_free(&node);
  return first;
}

}  // namespace lockstep
