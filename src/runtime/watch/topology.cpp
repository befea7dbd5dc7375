#include "topology.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace lockstep::watch {
namespace {

/// Makes `ranks`, which ascend, a tree: the first one is its root and keeps its parent.
void link_as_tree(std::span<const int> ranks, int fan_out, std::vector<int>& parents) {
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    parents[static_cast<std::size_t>(ranks[i])] =
        ranks[(i - 1) / static_cast<std::size_t>(fan_out)];
  }
}

}  // namespace

std::vector<int> tree_parents(std::span<const int> nodes, int fan_out) {
  std::map<int, std::vector<int>> ranks_of;
  std::vector<int> first_ranks;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    std::vector<int>& ranks = ranks_of[nodes[rank]];
    if (ranks.empty()) first_ranks.push_back(static_cast<int>(rank));
    ranks.push_back(static_cast<int>(rank));
  }
  std::vector<int> parents(nodes.size(), -1);
  link_as_tree(first_ranks, fan_out, parents);
  for (const auto& [node, ranks] : ranks_of) link_as_tree(ranks, fan_out, parents);
  return parents;
}

std::vector<int> deciders(std::span<const int> nodes, std::span<const int> parents) {
  std::vector<int> order{0};
  const std::vector<int> children = children_of(0, parents);
  std::ranges::copy(children, std::back_inserter(order));
  std::stable_partition(order.begin() + 1, order.end(), [&](int rank) {
    return nodes[static_cast<std::size_t>(rank)] != nodes[0];
  });
  return order;
}

std::vector<int> children_of(int rank, std::span<const int> parents) {
  std::vector<int> children;
  for (std::size_t each = 0; each < parents.size(); ++each) {
    if (parents[each] == rank) children.push_back(static_cast<int>(each));
  }
  return children;
}

}  // namespace lockstep::watch
