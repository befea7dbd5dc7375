#include "../../src/comm/nccl/unique_ids.hpp"
#include "comm/communicator_suite.hpp"
#include "comm/groups_rig.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/on_device.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
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
  // In each step a reduce-scatter, an all-reduce and an all-gather of each unit, and the tail.
  const DeviceProgress::Reading counts = rig.progress.read();
  const std::size_t queued = 20 * (3 * rig.units.size() + 1);
  BOOST_TEST(counts.reached == queued);
  BOOST_TEST(counts.completed == queued);
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

BOOST_AUTO_TEST_CASE(groups_are_split_from_all_ranks_which_start_with_several_ids) {
  Rig rig(usual_size(), 20s);
  rig.ranks_per_id = 2;
  const int ranks = rig.rendezvous.size();

  rig.make();

  // Of 3 ranks, 0 and 1 connect through the first id, and 2 through the second.
  const bool leads = rig.rank() == 0 || rig.rank() == 2;
  BOOST_TEST(rig.nccl.counts().ids == (leads ? 1 : 0));
  BOOST_TEST(rig.nccl.counts().scalable == (ranks > 2 ? 1 : 0));
  BOOST_TEST(rig.nccl.counts().split == 2);
  check_steps(rig);
}

BOOST_AUTO_TEST_CASE(an_older_nccl_starts_with_one_id) {
  Rig rig(usual_size(), 20s);
  rig.ranks_per_id = 1;
  rig.nccl.faults.no_scalable_init = true;

  rig.make();

  BOOST_TEST(rig.nccl.counts().ids == (rig.rank() == 0 ? 1 : 0));
  BOOST_TEST(rig.nccl.counts().scalable == 0);
  check_steps(rig);
}

BOOST_AUTO_TEST_CASE(ranks_with_other_settings_than_rank_0_are_named) {
  Rig rig(usual_size(), 20s);
  if (rig.is_last()) rig.settings = "NCCL 2.28.9, NCCL_NVLS_ENABLE=1";

  const auto error = rig.error_of([&] { rig.make(); });

  BOOST_TEST_REQUIRE(error.has_value());
  BOOST_TEST((error->status() == ExitStatus::usage));
  BOOST_TEST(std::string(error->what())
                 .starts_with(rig.rendezvous.name(rig.last()) + " has NCCL_NVLS_ENABLE=1, but " +
                              rig.rendezvous.name(0) + " has nothing more ("));
}

BOOST_AUTO_TEST_CASE(settings_that_differ_only_where_a_message_ends_are_told_apart) {
  Rig rig(usual_size(), 20s);
  rig.settings = "NCCL 2.28.9, NCCL_ALGO=" + std::string(600, 'a') + (rig.is_last() ? "b" : "c");

  const auto error = rig.error_of([&] { rig.make(); });

  BOOST_TEST_REQUIRE(error.has_value());
  BOOST_TEST((error->status() == ExitStatus::usage));
}

BOOST_AUTO_TEST_CASE(more_ids_than_fit_in_a_message_are_exchanged) {
  Rendezvous rendezvous;
  std::vector<int> leaders;
  leaders.reserve(9);
  for (int id = 0; id < 9; ++id) leaders.push_back(id % rendezvous.size());
  char made = 0;

  const auto ids = exchange_unique_ids(rendezvous, {"the test", 60s}, {}, leaders, [&](auto& id) {
    id.fill(static_cast<char>(10 * rendezvous.rank() + made++));
    return std::string();
  });

  BOOST_TEST_REQUIRE(ids.size() == leaders.size());
  for (int id = 0; id < 9; ++id) {
    const int expected = 10 * (id % rendezvous.size()) + id / rendezvous.size();
    BOOST_TEST(static_cast<int>(ids[static_cast<std::size_t>(id)][127]) == expected);
  }
}

BOOST_AUTO_TEST_CASE(ids_are_made_by_the_first_ranks_of_nccls_blocks) {
  using Ranks = std::vector<int>;
  BOOST_TEST((id_leaders(128, 128) == Ranks{0}));
  BOOST_TEST((id_leaders(129, 128) == Ranks{0, 65}));
  BOOST_TEST((id_leaders(11, 3) == Ranks{0, 3, 6, 9}));
  BOOST_TEST((id_leaders(12, 3) == Ranks{0, 3, 6, 9}));
  BOOST_TEST((id_leaders(13, 3) == Ranks{0, 3, 6, 9, 11}));
}

BOOST_AUTO_TEST_CASE(the_limit_of_the_start_grows_with_the_ranks) {
  BOOST_TEST((nccl_start_limit(10) == 301s));
  BOOST_TEST((nccl_start_limit(4096) == 709600ms));
  BOOST_TEST((nccl_start_limit(100000) == 20min));
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
