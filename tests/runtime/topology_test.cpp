#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

using namespace lockstep::watch;

namespace {

constexpr int fan_out = 64;

using Placement = std::function<int(int rank, int ranks, int per_node)>;

int by_blocks(int rank, int /*ranks*/, int per_node) {
  return rank / per_node;
}
int round_robin(int rank, int ranks, int per_node) {
  return rank % ((ranks + per_node - 1) / per_node);
}
/// Nodes of different sizes, numbered backward.
int uneven(int rank, int ranks, int per_node) {
  return ranks - rank / (per_node + rank / 100);
}

std::vector<int> nodes_of(int ranks, int per_node, const Placement& place) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(place(rank, ranks, per_node));
  return nodes;
}

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

/// Levels between the rank and rank 0.
int depth(int rank, const std::vector<int>& parents) {
  int levels = 0;
  for (int above = parents[at(rank)]; above >= 0; above = parents[at(above)]) ++levels;
  return levels;
}

bool is_first_of_its_node(int rank, const std::vector<int>& nodes) {
  return std::ranges::find(nodes, nodes[at(rank)]) == nodes.begin() + rank;
}

void check(const std::vector<int>& nodes, int deepest) {
  const std::vector<int> parents = tree_parents(nodes, fan_out);

  BOOST_TEST_REQUIRE(parents.size() == nodes.size());
  BOOST_TEST(parents[0] == -1);
  std::vector<int> here(nodes.size(), 0);
  std::vector<int> elsewhere(nodes.size(), 0);
  std::vector<bool> first(nodes.size());
  std::vector<bool> seen(nodes.size() + 1);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    first[rank] = !seen[at(nodes[rank])];
    seen[at(nodes[rank])] = true;
  }
  for (std::size_t rank = 1; rank < nodes.size(); ++rank) {
    const int parent = parents[rank];
    BOOST_TEST_REQUIRE(parent >= 0);
    BOOST_TEST_REQUIRE(parent < static_cast<int>(rank));
    BOOST_TEST_REQUIRE(depth(static_cast<int>(rank), parents) <= deepest);
    const bool same_node = nodes[at(parent)] == nodes[rank];
    ++(same_node ? here : elsewhere)[at(parent)];
    // Only first ranks connect nodes; all others stay on theirs.
    BOOST_TEST_REQUIRE(same_node != first[rank]);
    if (!same_node) BOOST_TEST_REQUIRE(first[at(parent)]);
  }
  BOOST_TEST(std::ranges::max(here) <= fan_out);
  BOOST_TEST(std::ranges::max(elsewhere) <= fan_out);
}

}  // namespace

BOOST_AUTO_TEST_CASE(only_first_ranks_connect_nodes_and_no_rank_has_many_children) {
  for (const int per_node : {1, 2, 8}) {
    for (const int ranks : {1, 2, 3, 64, 65, 66, 1000, 4096}) {
      check(nodes_of(ranks, per_node, by_blocks), 3);
      check(nodes_of(ranks, per_node, round_robin), 3);
      check(nodes_of(ranks, per_node, uneven), 4);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_node_of_many_ranks_is_a_tree_too) {
  check(nodes_of(300, 300, by_blocks), 2);
  check(nodes_of(2000, 200, by_blocks), 3);
}

BOOST_AUTO_TEST_CASE(losing_a_node_cuts_off_no_other_in_a_job_of_64_nodes) {
  const std::vector<int> nodes = nodes_of(512, 8, by_blocks);

  const std::vector<int> parents = tree_parents(nodes, fan_out);

  for (int rank = 0; rank < 512; ++rank) {
    if (is_first_of_its_node(rank, nodes) && rank > 0) {
      BOOST_TEST(parents[at(rank)] == 0);
    }
  }
  BOOST_TEST(children_of(0, parents).size() == 63U + 7U);
}

BOOST_AUTO_TEST_CASE(a_small_tree_is_as_drawn) {
  const std::vector<int> two_nodes{0, 0, 1, 1, 1};
  const std::vector<int> round{0, 1, 2, 0, 1, 2};

  BOOST_TEST((tree_parents(two_nodes, 64) == std::vector{-1, 0, 0, 2, 2}));
  BOOST_TEST((tree_parents(round, 64) == std::vector{-1, 0, 0, 0, 1, 2}));
  BOOST_TEST((tree_parents(round, 1) == std::vector{-1, 0, 1, 0, 1, 2}));
  BOOST_TEST((tree_parents(std::vector{4, 4, 4, 4}, 1) == std::vector{-1, 0, 1, 2}));
  BOOST_TEST((deciders(two_nodes, tree_parents(two_nodes, 64)) == std::vector{0, 2, 1}));
  BOOST_TEST((children_of(0, tree_parents(two_nodes, 64)) == std::vector{1, 2}));
  BOOST_TEST(children_of(4, tree_parents(two_nodes, 64)).empty());
}
