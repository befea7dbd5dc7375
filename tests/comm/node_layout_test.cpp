#include <boost/test/unit_test.hpp>

#include "../../src/comm/levels/node_layout.hpp"

#include <vector>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(consecutive_ranks_of_equal_nodes) {
  const std::vector<int> node_of{0, 0, 0, 3, 3, 3};
  const NodeLayout layout = node_layout(node_of, 4);
  BOOST_TEST(layout.nodes == 2);
  BOOST_TEST(layout.ranks_per_node == 3);
  BOOST_TEST(layout.is_consecutive);
  BOOST_TEST(layout.local_rank == 1);
  BOOST_TEST(layout.first_on_node == 3);
  BOOST_TEST(layout.first_of_peers == 1);
}

BOOST_AUTO_TEST_CASE(ranks_in_turn_on_the_nodes) {
  const std::vector<int> node_of{0, 1, 0, 1};
  const NodeLayout layout = node_layout(node_of, 3);
  BOOST_TEST(layout.nodes == 2);
  BOOST_TEST(layout.ranks_per_node == 2);
  BOOST_TEST(!layout.is_consecutive);
  BOOST_TEST(layout.local_rank == 1);
  BOOST_TEST(layout.first_on_node == 1);
  BOOST_TEST(layout.first_of_peers == 2);
}

BOOST_AUTO_TEST_CASE(unequal_nodes) {
  const std::vector<int> node_of{0, 0, 2};
  for (int rank = 0; rank < 3; ++rank) {
    const NodeLayout layout = node_layout(node_of, rank);
    BOOST_TEST(layout.nodes == 2);
    BOOST_TEST(layout.ranks_per_node == 0);
    BOOST_TEST(layout.is_consecutive);
  }
}
