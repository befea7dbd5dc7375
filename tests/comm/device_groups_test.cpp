#include "comm/communicator_suite.hpp"
#include "comm/groups_rig.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/on_device.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;
using Rig = lockstep::test::GroupsRig;

namespace {

/// Runs steps on devices of different speeds, each of which runs one collective at a time.
void check_steps(Rig& rig) {
  rig.nccl.faults.settle_polls = rig.rank() % 3;
  for (int step = 0; step < 20; ++step) {
    rig.nccl.queues.delays = {.kernel = 1 + (5 * step + 11 * rig.rank()) % 17,
                              .copy = 1 + (step + rig.rank()) % 4,
                              .task = 1 + rig.rank() % 5};
    for (Unit& unit : rig.units) std::ranges::fill(unit.weights, -1.0F);

    rig.queue_step();
    rig.all().synchronize();

    const auto ranks = static_cast<float>(rig.rendezvous.size());
    for (const Unit& unit : rig.units) {
      BOOST_TEST((unit.sums == std::vector<float>(unit.sums.size(), ranks)));
      BOOST_TEST((unit.weights == std::vector<float>(unit.weights.size(), -ranks)));
    }
    BOOST_TEST(rig.tail[4] == ranks);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_of_several_communicators_passes_the_suite) {
  for (const int size : group_sizes(Rendezvous().size())) {
    Rig rig(size, 60s);
    rig.make();
    BOOST_TEST(rig.all().size() == rig.rendezvous.size());
    BOOST_TEST(rig.group().size() == size);
    BOOST_TEST(rig.group().rank() == rig.rank() % size);
    BOOST_TEST(rig.replicas().rank() == rig.rank() / size);
    for (const auto& comm : rig.comms) {
      OnDevice host_side(*comm);
      check_communicator(host_side, {0, 17, 1000});
    }
  }
}

BOOST_AUTO_TEST_CASE(steps_over_groups_do_not_deadlock) {
  for (const int size : group_sizes(Rendezvous().size())) {
    Rig rig(size, 20s);
    rig.make();
    check_steps(rig);
  }
}

BOOST_AUTO_TEST_CASE(steps_over_groups_staged_through_the_host_give_the_same_sums) {
  for (const int size : group_sizes(Rendezvous().size())) {
    Rig rig(size, 20s);
    rig.make_staged();
    check_steps(rig);
  }
}

BOOST_AUTO_TEST_CASE(destruction_finalizes_all_communicators_and_frees_everything) {
  Rig rig(usual_size(), 20s);
  rig.make();
  rig.queue_step();
  rig.all().synchronize();

  rig.comms.clear();
  rig.nccl.stream_destroy(rig.compute);

  BOOST_TEST(rig.nccl.counts().finalized == 3);
  BOOST_TEST(rig.nccl.counts().destroyed == 3);
  BOOST_TEST(rig.nccl.counts().aborted == 0);
  BOOST_TEST(rig.nccl.counts().allocated == 0);
  BOOST_TEST(rig.nccl.queues.live() == 0);
}
