#pragma once

#include <span>
#include <vector>

namespace lockstep::watch {

/// Pure. The tree of the watchdogs' connections: each rank's parent, -1 for rank 0.
///
/// The ranks of a node are below the node's first rank, and only first ranks connect to other
/// nodes. So the loss of a node cuts off no other, unless first ranks are below its own. A rank has
/// at most `fan_out` children on its node, and a first rank as many on other nodes. A parent's
/// number is lower than its child's.
///
/// `nodes`: the node of each rank, in any order.
[[nodiscard]] std::vector<int> tree_parents(std::span<const int> nodes, int fan_out);

/// Pure. The ranks that decide for the job, in turn: rank 0, and if that is lost, its children,
/// those of other nodes first.
[[nodiscard]] std::vector<int> deciders(std::span<const int> nodes, std::span<const int> parents);

/// Pure. In ascending order.
[[nodiscard]] std::vector<int> children_of(int rank, std::span<const int> parents);

}  // namespace lockstep::watch
