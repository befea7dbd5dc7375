#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <mpi.h>

#include <cstdlib>
#include <numeric>
#include <string>

using namespace lockstep;

namespace {

int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// A process can start MPI only once, so one test case calls all checks that need it.
void check_environment() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  BOOST_TEST(level >= MPI_THREAD_FUNNELED);

  // MPI's default error handler would end the program here.
  int nothing = 0;
  BOOST_TEST(MPI_Bcast(&nothing, 1, MPI_INT, 99, MPI_COMM_WORLD) != MPI_SUCCESS);
}

/// A launcher's transport is kept. mpi_alone_test covers processes without a launcher.
void check_start() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && std::getenv("PMI_RANK") == nullptr) return;
  const char* transport = std::getenv("OMPI_MCA_btl");
  BOOST_TEST((transport == nullptr || std::string(transport) != "self"));
  BOOST_TEST(std::getenv("OMPI_MCA_btl_tcp_sndbuf") != nullptr);
}

void check_grid() {
  const ProcessGrid grid = make_process_grid();
  const ProcessGrid again = make_process_grid();
  const auto comm = make_mpi_communicator();

  BOOST_TEST(grid.rank == world_rank());
  BOOST_TEST(grid.world_size == comm->size());
  BOOST_TEST(!grid.host.empty());
  BOOST_TEST((again.local_rank == grid.local_rank && again.node == grid.node));
  BOOST_TEST((grid.node >= 0 && grid.node < grid.nodes));
  BOOST_TEST((grid.local_rank >= 0 && grid.local_rank < grid.local_size));

  // On each node, the local ranks are 0 to local_size - 1, in rank order.
  const int mine[] = {grid.node, grid.local_rank, grid.local_size};
  std::vector<int> all(3 * static_cast<std::size_t>(comm->size()));
  comm->all_gather(std::span<const int>(mine), std::span(all));
  std::vector<int> next_of_node(static_cast<std::size_t>(grid.nodes), 0);
  std::vector<int> size_of_node(static_cast<std::size_t>(grid.nodes), 0);
  for (std::size_t i = 0; i < all.size(); i += 3) {
    const auto node = static_cast<std::size_t>(all[i]);
    BOOST_TEST(all[i + 1] == next_of_node[node]++);
    size_of_node[node] = all[i + 2];
  }
  BOOST_TEST((size_of_node == next_of_node));
  BOOST_TEST(std::accumulate(size_of_node.begin(), size_of_node.end(), 0) == comm->size());
}

}  // namespace

BOOST_AUTO_TEST_CASE(before_mpi_the_grid_is_one_rank) {
  const ProcessGrid grid = make_process_grid();

  BOOST_TEST(grid.rank == 0);
  BOOST_TEST(grid.world_size == 1);
  BOOST_TEST(grid.local_size == 1);
  BOOST_TEST(grid.nodes == 1);
}

BOOST_AUTO_TEST_CASE(mpi_is_finalized_with_its_environment) {
  auto& suite = boost::unit_test::framework::master_test_suite();
  {
    const MpiEnvironment environment(suite.argc, suite.argv);
    check_environment();
    check_start();
    check_grid();
  }
  int finalized = 0;
  MPI_Finalized(&finalized);

  BOOST_TEST(finalized == 1);
}
