#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/join_tree.hpp"
#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/mpi_communicator.hpp"

#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::watch;

namespace {

/// The ranks are on two nodes, in turns.
ProcessGrid two_nodes(const Communicator& comm) {
  ProcessGrid grid;
  grid.rank = comm.rank();
  grid.world_size = comm.size();
  grid.node = comm.rank() % 2;
  grid.nodes = 2;
  grid.local_rank = comm.rank() / 2;
  return grid;
}

}  // namespace

BOOST_AUTO_TEST_CASE(only_first_ranks_of_nodes_listen_on_the_network) {
  const auto comm = make_mpi_communicator();
  if (comm->size() < 4) return;

  const JoinedTree joined = join_tree(*comm, two_nodes(*comm), {});

  const TreeOptions& tree = joined.options;
  BOOST_TEST((tree.parents == std::vector{-1, 0, 0, 1}));
  BOOST_TEST(tree.child_ports.size() == (tree.rank == 0 ? 2U : tree.rank == 1 ? 1U : 0U));
  const bool first = tree.rank < 2;
  BOOST_TEST(tree.address.has_value() != first);
  if (!first) BOOST_TEST((tree.parent.addresses == std::vector<std::string>{"127.0.0.1"}));
  if (tree.rank == 1) BOOST_TEST(!tree.parent.addresses.empty());
}

BOOST_AUTO_TEST_CASE(a_job_on_one_host_uses_loopback_only) {
  const auto comm = make_mpi_communicator();

  const JoinedTree joined = join_tree(*comm, make_process_grid(), {.fan_out = 1});

  const TreeOptions& tree = joined.options;
  BOOST_TEST(tree.address.has_value());
  if (tree.rank > 0) {
    BOOST_TEST((tree.parent.addresses == std::vector<std::string>{"127.0.0.1"}));
  }
  BOOST_TEST(joined.listener.has_value() == (comm->size() > 1));
  BOOST_TEST(tree.parents.back() == comm->size() - 2);
}
