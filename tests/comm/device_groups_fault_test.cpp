#include "comm/groups_rig.hpp"
#include "comm/mpi_fixture.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;
using Rig = lockstep::test::GroupsRig;

namespace {

constexpr std::array communicators{0, 1, 2};

/// Starts a message to another rank, and one from it.
Request start_messages(Rig& rig) {
  Unit& unit = rig.units.front();
  const int other = rig.rank() ^ 1;
  static_cast<void>(rig.all().start_send_buffer(Rig::there_const(unit.gradients), other));
  return rig.all().start_receive_buffer(Rig::there(unit.weights), other);
}

bool says(const std::optional<Error>& error, const std::string& text) {
  const bool found = error && error->status() == ExitStatus::internal &&
                     std::string(error->what()).find(text) != std::string::npos;
  BOOST_TEST(found, (error ? error->what() : "no error") << " does not contain '" << text << "'");
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_never_arrives_is_named_in_all_groups) {
  Rig rig(usual_size(), 1s);
  if (rig.is_last()) return;

  const auto error = rig.error_of([&] { rig.make(); });

  says(error, rig.rendezvous.name(rig.last()) + " did not come to the start of NCCL within 1 s");
  says(error, "; if the job only starts slowly, raise --limit");
}

BOOST_AUTO_TEST_CASE(a_rank_lost_while_nccl_connects_is_named_in_all_groups) {
  Rig rig(usual_size(), 1s);
  if (rig.is_last()) {
    rig.rendezvous.meet({"the start of NCCL", 20s}, {});
    rig.rendezvous.meet({"the start of NCCL", 20s}, {});
    return;
  }

  const auto error = rig.error_of([&] { rig.make(); });

  says(error, rig.rendezvous.name(rig.last()) + " did not come to the end of NCCL's start");
  BOOST_TEST(rig.nccl.counts().aborted == 1);
}

BOOST_AUTO_TEST_CASE(a_failed_start_of_any_communicator_is_reported_in_all_groups) {
  for (const int where : communicators) {
    Rig rig(usual_size(), 1s);
    rig.nccl.faults.where = where;
    rig.nccl.faults.init_fails = rig.is_last();

    const auto error = rig.error_of([&] { rig.make(); });

    says(error, std::string(where > 0 ? "ncclCommSplit" : "ncclCommInitRankConfig") +
                    " failed on " + rig.rendezvous.name(rig.last()));
    BOOST_TEST(rig.nccl.counts().finalized == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_hanging_start_of_any_communicator_names_its_ranks) {
  for (const int where : communicators) {
    Rig rig(usual_size(), 1s);
    rig.nccl.faults.where = where;
    rig.nccl.faults.init_hangs = rig.is_last();
    const Mesh mesh = data_mesh(rig.rendezvous.size(), usual_size());
    const std::vector<int> stuck = where == 0   ? rig.sets[0]
                                   : where == 1 ? mesh.ranks(rig.last(), {shard_axis})
                                                : mesh.ranks(rig.last(), {replica_axis});

    const auto error = rig.error_of([&] { rig.make(); });

    // The other ranks also wait for these ranks, in later communicators.
    says(error, "NCCL did not connect " + rig.rendezvous.name(stuck.front()) + " within 1 s");
    says(error, "; if the job only starts slowly, raise --limit");
    if (stuck.size() == rig.sets[0].size()) {
      says(error, "it does not reach another rank)");
    } else {
      for (const int rank : stuck) says(error, rig.rendezvous.name(rank));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_collective_that_one_rank_never_runs_times_out_in_all_groups) {
  // The group's first reduce-scatter, the tail's all-reduce, the first all-reduce over replicas.
  for (const int hanging : {0, 3, 4}) {
    Rig rig(usual_size(), 1s);
    rig.make();
    if (rig.is_last()) rig.nccl.faults.hanging = hanging;

    rig.queue_step();
    const auto error = rig.error_of([&] { rig.all().synchronize(); });
    const auto again = rig.error_of([&] { rig.group().barrier(); });

    says(error, "did not end on " + rig.rendezvous.name(rig.rank()) + " within 1 s");
    says(again, "it was aborted after an earlier error");
    BOOST_TEST(rig.nccl.counts().aborted == 3);
    rig.comms.clear();
    BOOST_TEST(rig.nccl.counts().finalized == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_lost_rank_of_one_communicator_aborts_all_communicators) {
  for (const int where : communicators) {
    Rig rig(usual_size(), 20s);
    rig.make();
    rig.queue_step();
    rig.all().synchronize();
    rig.nccl.faults.where = where;
    rig.nccl.faults.error_after = 0;

    const auto error = rig.error_of([&] { rig.all().synchronize(); });

    says(error, "a collective of NCCL failed on " + rig.rendezvous.name(rig.rank()));
    says(error, " was lost: look into its log");
    const auto& ranks = rig.sets[static_cast<std::size_t>(where)];
    if (ranks.size() < rig.sets[0].size()) {
      for (const int rank : ranks) says(error, rig.rendezvous.name(rank));
    }
    BOOST_TEST(rig.nccl.counts().aborted == 3);
  }
}

BOOST_AUTO_TEST_CASE(a_hanging_device_is_named_by_its_rank_of_the_job_in_all_groups) {
  for (std::size_t where = 0; where < communicators.size(); ++where) {
    Rig rig(usual_size(), 500ms);
    rig.make_staged();
    rig.nccl.queues.delays.kernel = 1 << 30;
    rig.nccl.queues.launch(rig.compute, [] {});

    const auto error = rig.error_of([&] { rig.comms[where]->synchronize(); });

    says(error, "the compute stream did not end on " + rig.rendezvous.name(rig.rank()));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_lost_during_a_message_aborts_all_communicators) {
  Rig rig(usual_size(), 20s);
  rig.make();
  Request request = start_messages(rig);
  rig.all().wait(request);
  rig.nccl.faults.error_after = 0;

  const auto error = rig.error_of([&] { rig.all().synchronize(); });

  says(error, "a collective of NCCL failed on " + rig.rendezvous.name(rig.rank()));
  says(error, "another rank was lost: look into its log");
  BOOST_TEST(rig.nccl.counts().aborted == 3);
}

BOOST_AUTO_TEST_CASE(a_message_that_one_rank_never_runs_times_out) {
  Rig rig(usual_size(), 1s);
  rig.make();
  rig.nccl.faults.hanging = 0;

  Request request = start_messages(rig);
  rig.all().wait(request);
  const auto error = rig.error_of([&] { rig.all().synchronize(); });
  const auto again = rig.error_of([&] { static_cast<void>(start_messages(rig)); });

  says(error, "the collectives did not end on " + rig.rendezvous.name(rig.rank()) + " within 1 s");
  says(again, "it was aborted after an earlier error");
  BOOST_TEST(rig.nccl.counts().aborted == 3);
}

BOOST_AUTO_TEST_CASE(messages_that_never_settle_time_out) {
  Rig rig(usual_size(), 1s);
  rig.make();
  rig.nccl.faults.settle_polls = 1 << 30;

  Request request = start_messages(rig);
  const auto error = rig.error_of([&] { rig.all().wait(request); });

  says(error, "a group of ncclSend and ncclRecv was not made on " +
                  rig.rendezvous.name(rig.rank()) + " within 1 s");
  BOOST_TEST(rig.nccl.counts().aborted == 3);
}

BOOST_AUTO_TEST_CASE(a_failed_split_aborts_and_is_named) {
  Rig rig(usual_size(), 1s);
  rig.make();
  rig.nccl.faults.init_fails = true;

  const auto error = rig.error_of([&] { static_cast<void>(rig.group().split(0, 0)); });

  says(error, "ncclCommSplit failed on " + rig.rendezvous.name(rig.rank()));
  BOOST_TEST(rig.nccl.counts().aborted == 3);
}

BOOST_AUTO_TEST_CASE(an_unrelated_exception_aborts_all_communicators) {
  Rig rig(usual_size(), 20s);
  try {
    const auto comms = make_nccl_communicators(rig.nccl, rig.rendezvous, rig.compute, rig.sets);
    throw std::runtime_error("bad sample");
  } catch (const std::runtime_error&) {
  }

  BOOST_TEST(rig.nccl.counts().aborted == 3);
  BOOST_TEST(rig.nccl.counts().finalized == 0);
}

BOOST_AUTO_TEST_CASE(a_hanging_finalize_aborts_all_communicators) {
  Rig rig(usual_size(), 500ms);
  rig.make();
  rig.nccl.faults.where = 0;
  rig.nccl.faults.finalize_hangs = true;

  rig.comms.clear();

  BOOST_TEST(rig.nccl.counts().finalized == 1);
  BOOST_TEST(rig.nccl.counts().destroyed == 0);
  BOOST_TEST(rig.nccl.counts().aborted == 3);
}
