#include "lockstep/comm/mesh.hpp"

#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/mpi_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <numeric>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using Ranks = std::vector<int>;

BOOST_AUTO_TEST_CASE(shard_groups_are_consecutive_ranks_and_replicas_have_equal_places) {
  const Mesh mesh = data_mesh(6, 3);

  BOOST_TEST((mesh.ranks(4, {shard_axis}) == Ranks{3, 4, 5}));
  BOOST_TEST((mesh.ranks(4, {replica_axis}) == Ranks{1, 4}));
  BOOST_TEST((mesh.ranks(4, {replica_axis, shard_axis}) == Ranks{0, 1, 2, 3, 4, 5}));
  BOOST_TEST((mesh.ranks(4, {}) == Ranks{4}));
}

BOOST_AUTO_TEST_CASE(the_ranks_of_an_axis_partition_the_job) {
  for (const int ranks : {1, 4, 12}) {
    for (int size = 1; size <= ranks; ++size) {
      if (ranks % size != 0) continue;
      const Mesh mesh = data_mesh(ranks, size);
      for (int rank = 0; rank < ranks; ++rank) {
        const Ranks group = mesh.ranks(rank, {shard_axis});
        const Ranks replicas = mesh.ranks(rank, {replica_axis});
        BOOST_TEST(group.size() * replicas.size() == static_cast<std::size_t>(ranks));
        for (const int other : group) BOOST_TEST((mesh.ranks(other, {shard_axis}) == group));
        for (const int other : replicas) {
          BOOST_TEST((mesh.ranks(other, {replica_axis}) == replicas));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(other_axes_divide_the_job_further) {
  const Mesh mesh({{"pipeline", 2}, {replica_axis, 2}, {shard_axis, 3}, {"tensor", 2}});

  BOOST_TEST(mesh.size() == 24);
  // Places 1, 0, 2, 1.
  BOOST_TEST((mesh.ranks(17, {"pipeline"}) == Ranks{5, 17}));
  BOOST_TEST((mesh.ranks(17, {replica_axis}) == Ranks{17, 23}));
  BOOST_TEST((mesh.ranks(17, {shard_axis}) == Ranks{13, 15, 17}));
  BOOST_TEST((mesh.ranks(17, {"tensor"}) == Ranks{16, 17}));
  // All ranks whose gradients are summed.
  BOOST_TEST((mesh.ranks(17, {shard_axis, replica_axis}) == Ranks{13, 15, 17, 19, 21, 23}));
}

BOOST_AUTO_TEST_CASE(a_communicator_of_axes_has_their_ranks_in_order) {
  const auto job = make_mpi_communicator();
  const int group = job->size() % 2 == 0 ? 2 : 1;
  const Mesh mesh = data_mesh(job->size(), group);
  const auto check = [&](std::initializer_list<std::string_view> axes) {
    const auto comm = mesh.split(*job, axes);
    Ranks found(static_cast<std::size_t>(comm->size()));
    const int mine = job->rank();
    comm->all_gather(std::span<const int>(&mine, 1), std::span(found));
    BOOST_TEST((found == mesh.ranks(mine, axes)));
  };

  check({shard_axis});
  check({replica_axis});
  check({replica_axis, shard_axis});
}
