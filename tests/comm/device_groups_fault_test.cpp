#include "comm/groups_rig.hpp"
#include "comm/mpi_fixture.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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

/// The last rank has the faults. It ends its waits after 1 s and aborts; the other ranks wait for
/// longer, and learn of the abort from NCCL.
struct OneFails : Rig {
  OneFails() : Rig(usual_size(), 1s) {
    if (!is_last()) limit = 20s;
    make();
    nccl.faults.abort_is_seen = is_last();
  }
  /// Once all ranks have come here.
  template <typename Fault>
  void plant(Fault&& fault) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_last()) fault(nccl.faults);
  }
  [[nodiscard]] std::string its_name() const { return rendezvous.name(last()); }
  /// The error of `work`, or else of a wait after it.
  [[nodiscard]] std::optional<Error> end_of(const std::function<void()>& work) {
    return error_of([&] {
      work();
      all().synchronize_until([] { return false; });
    });
  }
  /// `text` is in the last rank's error. Those of the others name it.
  void check_end(const std::optional<Error>& error, const std::string& text, int aborted = 3) {
    says(error, is_last() ? text : fmt::format("connection closed by rank {} of the job", last()));
    if (!is_last()) says(error, " was lost: look into its log");
    BOOST_TEST(nccl.counts().aborted == aborted);
  }
};

/// Work of a stream that hangs until it is released.
struct HangingKernel final : StandInTask {
  bool released = false;
  [[nodiscard]] bool attempt() override { return released; }
};

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

BOOST_AUTO_TEST_CASE(an_error_of_one_communicator_of_one_rank_ends_all_ranks) {
  for (const int where : communicators) {
    OneFails rig;
    rig.queue_step();
    rig.all().synchronize();
    rig.plant([&](auto& faults) {
      faults.where = where;
      faults.error_after = 0;
    });

    const auto error = rig.end_of([] {});

    rig.check_end(error, "a collective of NCCL failed on " + rig.its_name());
    const auto& ranks = rig.sets[static_cast<std::size_t>(where)];
    if (rig.is_last() && ranks.size() < rig.sets[0].size()) {
      for (const int rank : ranks) says(error, rig.rendezvous.name(rank));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_hanging_device_is_named_by_its_rank_of_the_job_in_all_groups) {
  for (std::size_t where = 0; where < communicators.size(); ++where) {
    Rig rig(usual_size(), 500ms);
    rig.make_staged();
    DeviceCommunicator& comm = *rig.comms[where];
    HangingKernel kernel;
    if (rig.is_last()) rig.nccl.queues.queue(rig.compute, kernel);
    const bool waits = std::ranges::find(rig.sets[where], rig.last()) != rig.sets[where].end();

    Request request = comm.start_all_reduce_buffer(Rig::there(rig.tail), ReduceOp::sum);
    const auto in_sum = rig.error_of([&] { comm.wait(request); });
    const auto on_device = rig.error_of([&] { comm.synchronize(); });

    BOOST_TEST(in_sum.has_value() == waits);
    if (waits) says(in_sum, "through the host did not end on " + rig.rendezvous.name(rig.rank()));
    BOOST_TEST(on_device.has_value() == rig.is_last());
    if (on_device)
      says(on_device, "the compute stream did not end on " + rig.rendezvous.name(rig.last()));
    MPI_Barrier(MPI_COMM_WORLD);
    // Completes the sum, so that MPI can finalize.
    kernel.released = true;
    while (!comm.test(request)) {
    }
  }
}

BOOST_AUTO_TEST_CASE(an_error_of_one_rank_during_a_message_ends_all_ranks) {
  OneFails rig;
  Request request = start_messages(rig);
  rig.all().wait(request);
  rig.plant([](auto& faults) { faults.error_after = 0; });

  const auto error = rig.end_of([] {});

  rig.check_end(error, "a collective of NCCL failed on " + rig.its_name());
}

BOOST_AUTO_TEST_CASE(messages_that_one_rank_never_runs_end_all_ranks) {
  OneFails rig;
  rig.plant([](auto& faults) { faults.hanging = 0; });

  Request request = start_messages(rig);
  rig.all().wait(request);
  const auto error = rig.end_of([&] { rig.all().synchronize(); });
  const auto again = rig.error_of([&] { static_cast<void>(start_messages(rig)); });

  rig.check_end(error, "the collectives did not end on " + rig.its_name());
  says(again, "it was aborted after an earlier error");
}

BOOST_AUTO_TEST_CASE(messages_that_never_settle_on_one_rank_end_all_ranks) {
  OneFails rig;
  rig.plant([](auto& faults) { faults.settle_polls = 1 << 30; });

  Request request = start_messages(rig);
  const auto error = rig.end_of([&] { rig.all().wait(request); });

  rig.check_end(error, "a group of ncclSend and ncclRecv was not made on " + rig.its_name());
}

BOOST_AUTO_TEST_CASE(a_split_that_fails_on_one_rank_ends_all_ranks) {
  OneFails rig;
  const std::vector<int>& group = rig.sets[1];
  const bool fails_too = std::ranges::find(group, rig.last()) != group.end();
  std::unique_ptr<Communicator> part;
  if (!fails_too) part = rig.group().split(0, 0);
  rig.plant([](auto& faults) { faults.init_fails = true; });

  const auto error = rig.end_of([&] {
    if (fails_too) part = rig.group().split(0, 0);
  });

  BOOST_TEST((part == nullptr) == fails_too);
  rig.check_end(error, "ncclCommSplit failed on " + rig.its_name(), fails_too ? 3 : 4);
}

BOOST_AUTO_TEST_CASE(an_unrelated_error_of_one_rank_ends_all_ranks) {
  OneFails rig;

  const auto error = rig.end_of([&] {
    if (!rig.is_last()) return;
    const auto comms = std::exchange(rig.comms, {});
    fail(ExitStatus::internal, "bad sample");
  });

  rig.check_end(error, "bad sample");
  BOOST_TEST(rig.nccl.counts().finalized == 0);
}

BOOST_AUTO_TEST_CASE(a_hanging_finalize_aborts_all_communicators) {
  Rig rig(usual_size(), 500ms);
  rig.make();
  rig.nccl.faults.where = 0;
  rig.nccl.faults.finalize_hangs = rig.is_last();

  rig.comms.clear();

  const bool hangs = rig.is_last();
  BOOST_TEST(rig.nccl.counts().finalized == (hangs ? 1 : 3));
  BOOST_TEST(rig.nccl.counts().destroyed == (hangs ? 0 : 3));
  BOOST_TEST(rig.nccl.counts().aborted == (hangs ? 3 : 0));
}
