#pragma once

#include "../mpi_group.hpp"

#include <span>
#include <vector>

namespace lockstep {

/// Placement of a communicator's ranks on nodes.
struct NodeLayout {
  int nodes = 1;
  /// Zero: not the same number on all nodes.
  int ranks_per_node = 0;
  /// Each node has consecutive ranks.
  bool is_consecutive = false;
  int local_rank = 0;      ///< of this rank among its node's
  int first_on_node = 0;   ///< lowest rank on this rank's node
  int first_of_peers = 0;  ///< lowest rank with this local rank
};

/// `node_of[r]` identifies rank r's node. Pure.
[[nodiscard]] NodeLayout node_layout(std::span<const int> node_of, int rank);

/// Collective over the ranks of `group`: the lowest of them on this rank's node.
[[nodiscard]] int first_rank_on_node(const MpiGroup& group);

}  // namespace lockstep
