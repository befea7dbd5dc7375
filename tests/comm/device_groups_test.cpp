#define BOOST_TEST_MODULE device_groups
#include "comm/communicator_suite.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/nccl_stand_in.hpp"
#include "comm/on_device.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/rank_groups.hpp"
#include "lockstep/comm/staged_communicator.hpp"
#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::vector<int>> sets_of(const RollCall& roll_call, int group_size) {
  std::vector<int> all(static_cast<std::size_t>(roll_call.size()));
  std::iota(all.begin(), all.end(), 0);
  RankGroups groups = rank_groups(roll_call.rank(), roll_call.size(), group_size);
  return {std::move(all), std::move(groups.group), std::move(groups.replicas)};
}

/// The sizes of groups that a job of so many ranks may have.
std::vector<int> group_sizes(int ranks) {
  std::vector<int> sizes;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  return sizes;
}

/// What a rank of groups that share out gives its communicators in a step, by unit.
struct Unit {
  Unit(int group, int rank, std::size_t part)
      : gradients(part * static_cast<std::size_t>(group), -1.0F),
        sums(part, -1.0F),
        weights(gradients.size(), -1.0F),
        own(std::span(weights).subspan(part * static_cast<std::size_t>(rank), part)) {}
  std::vector<float> gradients;
  std::vector<float> sums;
  std::vector<float> weights;
  std::span<float> own;
};

struct Rig {
  Rig(int group_size, std::chrono::milliseconds limit_of_waits)
      : limit(limit_of_waits), sets(sets_of(roll_call, group_size)), nccl(sets) {
    BOOST_TEST_REQUIRE((nccl.stream_create(&compute) == CudaResult::success));
    for (std::size_t part : {100U, 7U, 33U}) {
      units.emplace_back(group_size, roll_call.rank() % group_size, part);
    }
  }
  void make() {
    comms = make_nccl_communicators(nccl, roll_call, compute, sets,
                                    {.start_limit = limit, .wait_limit = limit});
  }
  /// Through the host instead.
  void make_staged() {
    for (const auto& ranks : sets) {
      comms.push_back(make_staged_communicator(
          nccl, make_mpi_communicator({.color = ranks.front()}), compute, {.wait_limit = limit}));
    }
  }
  [[nodiscard]] std::optional<Error> error_of(const std::function<void()>& work) {
    const auto begin = Clock::now();
    std::optional<Error> error;
    try {
      work();
    } catch (const Error& thrown) {
      error = thrown;
    }
    BOOST_TEST((Clock::now() - begin < 20s));
    return error;
  }
  [[nodiscard]] DeviceCommunicator& all() { return *comms[0]; }
  [[nodiscard]] DeviceCommunicator& group() { return *comms[1]; }
  [[nodiscard]] DeviceCommunicator& replicas() { return *comms[2]; }
  [[nodiscard]] int rank() const { return roll_call.rank(); }
  [[nodiscard]] int last() const { return roll_call.size() - 1; }
  [[nodiscard]] bool is_last() const { return rank() == last(); }
  [[nodiscard]] static MutableBuffer there(std::span<float> values) {
    return {device_address(values.data()), values.size(), ElementType::f32};
  }
  [[nodiscard]] static ConstBuffer there_const(std::span<const float> values) {
    return {device_address(values.data()), values.size(), ElementType::f32};
  }

  /// As ShardedState does: reductions in the group and then over the replicas, gathers beside them,
  /// the tail over all.
  void queue_step() {
    std::vector<Request> in_group;
    std::vector<Request> over_replicas;
    for (Unit& unit : units) {
      nccl.queues.launch(compute, [&unit] { std::ranges::fill(unit.gradients, 1.0F); });
      in_group.push_back(group().start_reduce_scatter_buffer(
          there_const(unit.gradients), there(unit.sums), ReduceOp::sum));
    }
    std::ranges::fill(tail, 1.0F);
    Request tail_sum = all().start_all_reduce_buffer(there(tail), ReduceOp::sum);
    for (std::size_t i = 0; i < units.size(); ++i) {
      group().wait(in_group[i]);
      over_replicas.push_back(
          replicas().start_all_reduce_buffer(there(units[i].sums), ReduceOp::sum));
    }
    std::vector<Request> gathers;
    for (std::size_t i = 0; i < units.size(); ++i) {
      Unit& unit = units[i];
      replicas().wait(over_replicas[i]);
      nccl.queues.launch(compute, [&unit] {
        std::ranges::transform(unit.sums, unit.own.begin(), [](float sum) { return -sum; });
      });
      gathers.push_back(
          group().start_all_gather_buffer(there_const(unit.own), there(unit.weights)));
    }
    all().wait(tail_sum);
    for (Request& gather : gathers) group().wait(gather);
  }

  RollCall roll_call;
  std::chrono::milliseconds limit;
  std::vector<std::vector<int>> sets;
  std::vector<Unit> units;  // buffers outlive the stand-in
  std::array<float, 5> tail{};
  NcclStandIn nccl;
  CudaStream compute = nullptr;
  std::vector<std::unique_ptr<DeviceCommunicator>> comms;
};

bool says(const std::optional<Error>& error, const std::string& text) {
  const bool found = error && error->status() == ExitStatus::internal &&
                     std::string(error->what()).find(text) != std::string::npos;
  BOOST_TEST(found, (error ? error->what() : "no error") << ", not '" << text << "'");
  return found;
}

/// A device has room for one collective, and devices are not alike quick.
void check_steps(Rig& rig) {
  rig.nccl.faults.settle_polls = rig.rank() % 3;
  for (int step = 0; step < 20; ++step) {
    rig.nccl.queues.delays = {.kernel = 1 + (5 * step + 11 * rig.rank()) % 17,
                              .copy = 1 + (step + rig.rank()) % 4,
                              .task = 1 + rig.rank() % 5};
    for (Unit& unit : rig.units) std::ranges::fill(unit.weights, -1.0F);

    rig.queue_step();
    rig.all().synchronize();

    const auto ranks = static_cast<float>(rig.roll_call.size());
    for (const Unit& unit : rig.units) {
      BOOST_TEST((unit.sums == std::vector<float>(unit.sums.size(), ranks)));
      BOOST_TEST((unit.weights == std::vector<float>(unit.weights.size(), -ranks)));
    }
    BOOST_TEST(rig.tail[4] == ranks);
  }
}

/// Two groups of two, where there are four ranks.
int usual_size() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks % 2 == 0 ? ranks / 2 : 1;
}
constexpr std::array communicators{0, 1, 2};

}  // namespace

BOOST_AUTO_TEST_CASE(each_of_several_communicators_conforms) {
  for (const int size : group_sizes(RollCall().size())) {
    Rig rig(size, 60s);
    rig.make();
    BOOST_TEST(rig.all().size() == rig.roll_call.size());
    BOOST_TEST(rig.group().size() == size);
    BOOST_TEST(rig.group().rank() == rig.rank() % size);
    BOOST_TEST(rig.replicas().rank() == rig.rank() / size);
    for (const auto& comm : rig.comms) {
      OnDevice host_side(*comm);
      check_communicator(host_side, {0, 17, 1000});
    }
  }
}

BOOST_AUTO_TEST_CASE(steps_over_groups_never_wait_for_room_on_a_device) {
  for (const int size : group_sizes(RollCall().size())) {
    Rig rig(size, 20s);
    rig.make();
    check_steps(rig);
  }
}

BOOST_AUTO_TEST_CASE(steps_over_groups_through_the_host_give_the_same) {
  for (const int size : group_sizes(RollCall().size())) {
    Rig rig(size, 20s);
    rig.make_staged();
    check_steps(rig);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_never_comes_is_named_in_all_groups) {
  Rig rig(usual_size(), 1s);
  if (rig.is_last()) return;

  const auto error = rig.error_of([&] { rig.make(); });

  says(error, rig.roll_call.name(rig.last()) + " did not come to the start of NCCL within 1 s");
}

BOOST_AUTO_TEST_CASE(a_rank_lost_while_nccl_connects_is_named_in_all_groups) {
  Rig rig(usual_size(), 1s);
  if (rig.is_last()) {
    std::vector<NcclUniqueId> ids(3);
    std::vector<int> leaders;
    for (const auto& ranks : rig.sets) leaders.push_back(ranks.front());
    if (rig.last() > 0) {
      rig.roll_call.meet({"the start of NCCL", 20s}, {}, std::as_writable_bytes(std::span(ids)),
                         leaders);
    }
    return;
  }

  const auto error = rig.error_of([&] { rig.make(); });

  says(error, rig.roll_call.name(rig.last()) + " did not come to the end of NCCL's start");
  BOOST_TEST(rig.nccl.counts().aborted == 1);
}

BOOST_AUTO_TEST_CASE(a_rank_whose_start_fails_in_any_communicator_says_why_in_all_groups) {
  for (const int where : communicators) {
    Rig rig(usual_size(), 1s);
    rig.nccl.faults.where = where;
    rig.nccl.faults.init_fails = rig.is_last();

    const auto error = rig.error_of([&] { rig.make(); });

    says(error, "ncclCommInitRankConfig failed on " + rig.roll_call.name(rig.last()));
    BOOST_TEST(rig.nccl.counts().finalized == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_start_that_hangs_in_any_communicator_names_those_it_should_reach) {
  for (const int where : communicators) {
    Rig rig(usual_size(), 1s);
    rig.nccl.faults.where = where;
    rig.nccl.faults.init_hangs = rig.is_last();
    const RankGroups last = rank_groups(rig.last(), rig.roll_call.size(), usual_size());
    const std::vector<int>& stuck = where == 0   ? rig.sets[0]
                                    : where == 1 ? last.group
                                                 : last.replicas;

    const auto error = rig.error_of([&] { rig.make(); });

    // Others wait too, in later communicators, for those that are stuck.
    says(error, "NCCL did not connect " + rig.roll_call.name(stuck.front()) + " within 1 s");
    if (stuck.size() == rig.sets[0].size()) {
      says(error, "it does not reach another rank)");
    } else {
      for (const int rank : stuck) says(error, rig.roll_call.name(rank));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_collective_that_one_rank_never_makes_ends_all_groups) {
  // The group's first reduction, the tail over all, the first sum over replicas.
  for (const int hanging : {0, 3, 4}) {
    Rig rig(usual_size(), 1s);
    rig.make();
    if (rig.is_last()) rig.nccl.faults.hanging = hanging;

    rig.queue_step();
    const auto error = rig.error_of([&] { rig.all().synchronize(); });
    const auto again = rig.error_of([&] { rig.group().barrier(); });

    says(error, "did not end on " + rig.roll_call.name(rig.rank()) + " within 1 s");
    says(again, "it was aborted after an earlier error");
    BOOST_TEST(rig.nccl.counts().aborted == 3);
    rig.comms.clear();
    BOOST_TEST(rig.nccl.counts().finalized == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_lost_rank_of_one_communicator_is_found_by_another_and_aborts_all) {
  for (const int where : communicators) {
    Rig rig(usual_size(), 20s);
    rig.make();
    rig.queue_step();
    rig.all().synchronize();
    rig.nccl.faults.where = where;
    rig.nccl.faults.error_after = 0;

    const auto error = rig.error_of([&] { rig.all().synchronize(); });

    says(error, "a collective of NCCL failed on " + rig.roll_call.name(rig.rank()));
    says(error, " was lost: look into its log");
    const auto& ranks = rig.sets[static_cast<std::size_t>(where)];
    if (ranks.size() < rig.sets[0].size()) {
      for (const int rank : ranks) says(error, rig.roll_call.name(rank));
    }
    BOOST_TEST(rig.nccl.counts().aborted == 3);
  }
}

BOOST_AUTO_TEST_CASE(an_exception_that_passes_aborts_all) {
  Rig rig(usual_size(), 20s);
  std::vector<std::unique_ptr<DeviceCommunicator>> none;
  try {
    const auto comms = make_nccl_communicators(rig.nccl, rig.roll_call, rig.compute, rig.sets);
    throw std::runtime_error("bad sample");
  } catch (const std::runtime_error&) {
  }

  BOOST_TEST(rig.nccl.counts().aborted == 3);
  BOOST_TEST(rig.nccl.counts().finalized == 0);
}

BOOST_AUTO_TEST_CASE(the_end_finishes_all_and_gives_everything_back) {
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

BOOST_AUTO_TEST_CASE(an_end_that_the_others_do_not_share_aborts_the_rest) {
  Rig rig(usual_size(), 500ms);
  rig.make();
  rig.nccl.faults.where = 0;
  rig.nccl.faults.finalize_hangs = true;

  rig.comms.clear();

  BOOST_TEST(rig.nccl.counts().finalized == 1);
  BOOST_TEST(rig.nccl.counts().destroyed == 0);
  BOOST_TEST(rig.nccl.counts().aborted == 3);
}
