#include "comm/mpi_fixture.hpp"
#include "comm/nccl_stand_in.hpp"
#include "comm/sharded_step.hpp"
#include "comm/test_seeds.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

std::optional<Error> error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

bool says(const std::optional<Error>& error, const std::string& text) {
  return error && error->status() == ExitStatus::internal &&
         std::string(error->what()).find(text) != std::string::npos;
}

struct Fixture {
  Fixture() {
    nccl.vary(soak_seed());
    BOOST_TEST_REQUIRE((nccl.stream_create(&compute) == CudaResult::success));
  }
  void make(std::chrono::milliseconds limit) {
    comm = make_nccl_communicator(nccl, rendezvous, compute,
                                  {.start_limit = limit, .wait_limit = limit});
    nccl.count_from_here();
  }
  [[nodiscard]] Request start() { return comm->start_all_reduce_buffer(buffer, ReduceOp::sum); }
  [[nodiscard]] bool is_last() const { return rendezvous.rank() == rendezvous.size() - 1; }
  [[nodiscard]] std::string me() const { return rendezvous.name(rendezvous.rank()); }
  [[nodiscard]] std::string last() const { return rendezvous.name(rendezvous.size() - 1); }

  std::vector<float> values = std::vector<float>(100, 1.0F);
  MutableBuffer buffer{device_address(values.data()), 100, ElementType::f32};
  Rendezvous rendezvous;
  ShardedStep sharded{*make_mpi_communicator(), 100};
  NcclStandIn nccl;
  CudaStream compute = nullptr;
  std::unique_ptr<DeviceCommunicator> comm;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_late_rank_and_a_slow_start_are_waited_for, Fixture) {
  if (is_last()) std::this_thread::sleep_for(500ms);
  nccl.faults.init_polls = 3000 * (rendezvous.rank() + 1);

  make(20s);
  comm->all_reduce_buffer(buffer, ReduceOp::sum);

  BOOST_TEST(values[99] == static_cast<float>(rendezvous.size()));
}

BOOST_FIXTURE_TEST_CASE(a_rank_that_never_arrives_is_named_by_the_others, Fixture) {
  if (is_last()) return;
  const auto begin = Clock::now();

  const auto error = error_of([&] { make(500ms); });

  BOOST_TEST(says(error, last() + " did not come to the start of NCCL within 0.5 s"));
  BOOST_TEST((Clock::now() - begin < 10s));
  BOOST_TEST(nccl.queues.live() == 1);
}

BOOST_FIXTURE_TEST_CASE(a_rank_lost_while_nccl_connects_is_named_by_the_others, Fixture) {
  const auto begin = Clock::now();
  std::optional<Error> error;
  if (is_last() && rendezvous.size() > 1) {
    // It compares settings, receives the id, and is lost.
    NcclUniqueId id{};
    rendezvous.meet({"the start of NCCL", 20s}, {});
    rendezvous.meet({"the start of NCCL", 20s}, {}, std::as_writable_bytes(std::span(id)));
  } else if (rendezvous.size() > 1) {
    error = error_of([&] { make(500ms); });

    BOOST_TEST(says(error, last() + " did not come to the end of NCCL's start"));
    BOOST_TEST(nccl.counts().aborted == 1);
  }
  BOOST_TEST((Clock::now() - begin < 10s));
}

BOOST_FIXTURE_TEST_CASE(a_start_above_the_limit_fails_on_all_ranks, Fixture) {
  nccl.faults.init_hangs = is_last();
  const auto begin = Clock::now();

  const auto error = error_of([&] { make(500ms); });

  BOOST_TEST(says(error, "NCCL did not connect rank 0 "));
  BOOST_TEST(says(error, "within 0.5 s"));
  BOOST_TEST(nccl.counts().aborted == 1);
  BOOST_TEST((Clock::now() - begin < 10s));
}

BOOST_FIXTURE_TEST_CASE(a_failed_start_is_reported_on_all_ranks, Fixture) {
  nccl.faults.init_fails = is_last();

  const auto error = error_of([&] { make(500ms); });

  BOOST_TEST(says(error, "ncclCommInitRankConfig failed on " + last() +
                             " (NCCL error 2: the stand-in was told to)"));
  BOOST_TEST(nccl.counts().aborted == (is_last() ? 0 : 1));
}

BOOST_AUTO_TEST_CASE(a_first_collective_that_does_not_end_fails_the_start) {
  for (const int hanging : {0, 1}) {
    Fixture rig;
    if (rig.is_last()) rig.nccl.faults.hanging = hanging;
    const auto begin = Clock::now();

    const auto error = error_of([&] { rig.make(500ms); });

    BOOST_TEST(says(error, "NCCL did not connect rank 0 "));
    BOOST_TEST(says(error, "within 0.5 s (it does not reach another rank)"));
    BOOST_TEST(rig.nccl.counts().aborted == 1);
    BOOST_TEST((Clock::now() - begin < 10s));
  }
}

BOOST_AUTO_TEST_CASE(an_asynchronous_error_in_a_first_collective_fails_the_start) {
  for (const int before : {0, 1}) {
    Fixture rig;
    if (rig.is_last()) rig.nccl.faults.error_after = before;

    const auto error = error_of([&] { rig.make(1s); });

    BOOST_TEST(says(error, " failed on " + rig.last() + " (NCCL error 6"));
    BOOST_TEST(rig.nccl.counts().aborted == 1);
    BOOST_TEST(rig.nccl.counts().misuses == 0);
  }
}

BOOST_FIXTURE_TEST_CASE(a_device_failure_in_a_first_collective_is_reported_on_all_ranks, Fixture) {
  nccl.faults.device_fails = is_last();

  const auto error = error_of([&] { make(500ms); });

  BOOST_TEST(says(error, "cudaStreamQuery failed on " + last() + " (CUDA error 700)"));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(a_rank_lost_before_its_first_collective_is_named_by_the_others, Fixture) {
  if (rendezvous.size() == 1) return;
  const auto begin = Clock::now();
  if (is_last()) {
    NcclUniqueId id{};
    rendezvous.meet({"the start of NCCL", 20s}, {});
    rendezvous.meet({"the start of NCCL", 20s}, {}, std::as_writable_bytes(std::span(id)));
    NcclComm ready = nullptr;
    NcclResult state = nccl.comm_init_rank_config(&ready, rendezvous.size(), id, rendezvous.rank(),
                                                  {.blocking = false});
    while (state == NcclResult::in_progress) {
      BOOST_TEST_REQUIRE((nccl.comm_get_async_error(ready, &state) == NcclResult::success));
    }
    BOOST_TEST((state == NcclResult::success));
    // It is lost before this begins, which the stand-in makes up for at its end.
    static_cast<void>(nccl.all_reduce(buffer.data, buffer.data, 1, ElementType::u8, ReduceOp::max,
                                      ready, compute));
    return;
  }

  const auto error = error_of([&] { make(500ms); });

  BOOST_TEST(says(error, last() + " did not come to the end of NCCL's start"));
  BOOST_TEST(nccl.counts().aborted == 1);
  BOOST_TEST((Clock::now() - begin < 10s));
}

BOOST_FIXTURE_TEST_CASE(a_device_failure_before_the_start_is_reported_on_all_ranks, Fixture) {
  nccl.faults.no_memory = is_last();
  const auto begin = Clock::now();

  const auto error = error_of([&] { make(20s); });

  BOOST_TEST(says(error, "cudaMalloc failed on " + last() + " (CUDA error 2)"));
  BOOST_TEST((Clock::now() - begin < 10s));
  BOOST_TEST(nccl.queues.live() == 1);
}

BOOST_FIXTURE_TEST_CASE(an_asynchronous_error_aborts_and_names_rank_and_host, Fixture) {
  make(20s);
  nccl.faults.error_after = 3;

  int steps = 0;
  const auto error = error_of([&] {
    for (; steps < 10; ++steps) {
      Request request = start();
      comm->wait(request);
      comm->synchronize();
    }
  });

  BOOST_TEST(says(error, "failed on " + me() + " (NCCL error 6"));
  BOOST_TEST(says(error, "another rank was lost"));
  BOOST_TEST((steps == 2 || steps == 3));
  BOOST_TEST(nccl.counts().aborted == 1);
  comm.reset();
  BOOST_TEST(nccl.counts().aborted == 1);
  BOOST_TEST(nccl.counts().finalized == 0);
}

BOOST_FIXTURE_TEST_CASE(an_asynchronous_error_ends_a_wait_for_work, Fixture) {
  make(20s);
  nccl.faults.error_after = 0;
  const auto begin = Clock::now();

  const auto error = error_of([&] { comm->synchronize_until([] { return false; }); });

  BOOST_TEST(says(error, "failed on " + me() + " (NCCL error 6"));
  BOOST_TEST((Clock::now() - begin < 10s));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(a_wait_for_work_that_never_ends_times_out, Fixture) {
  make(500ms);

  const auto error = error_of([&] { comm->synchronize_until([] { return false; }); });

  BOOST_TEST(says(error, "the work of a step did not end on " + me() + " within 0.5 s"));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(a_check_finds_an_error_without_waiting, Fixture) {
  make(20s);
  comm->check();
  nccl.faults.error_after = 0;

  const auto error = error_of([&] { comm->check(); });
  const auto again = error_of([&] { comm->barrier(); });

  BOOST_TEST(says(error, "failed on " + me()));
  BOOST_TEST(says(again, "it was aborted after an earlier error"));
  BOOST_TEST(says(again, me()));
}

BOOST_FIXTURE_TEST_CASE(a_reduction_that_one_rank_never_runs_times_out_on_all_ranks, Fixture) {
  make(500ms);
  if (is_last()) nccl.faults.hanging = 1;
  Request first = start();
  comm->wait(first);
  comm->synchronize();
  const auto begin = Clock::now();

  Request second = start();
  comm->wait(second);
  const auto error = error_of([&] { comm->synchronize(); });

  BOOST_TEST(says(error, "the collectives did not end on " + me() + " within 0.5 s"));
  BOOST_TEST((Clock::now() - begin < 10s));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(a_rank_that_times_out_first_completes_nothing_for_the_others, Fixture) {
  make(500ms);
  if (is_last()) nccl.faults.hanging = 0;

  Request request = start();
  comm->wait(request);
  if (!is_last()) std::this_thread::sleep_for(250ms);
  const auto error = error_of([&] { comm->synchronize(); });

  BOOST_TEST(says(error, "the collectives did not end on " + me() + " within 0.5 s"));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(a_blocking_collective_that_never_completes_times_out, Fixture) {
  make(500ms);
  nccl.faults.hanging = 0;

  const auto error = error_of([&] { comm->all_reduce_buffer(buffer, ReduceOp::sum); });

  BOOST_TEST(says(error, "ncclAllReduce did not end on " + me() + " within 0.5 s"));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(a_collective_that_never_settles_times_out, Fixture) {
  make(500ms);
  nccl.faults.settle_polls = 1 << 30;

  const auto error = error_of([&] { static_cast<void>(start()); });

  BOOST_TEST(says(error, "ncclAllReduce was not made on " + me() + " within 0.5 s"));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(a_reduce_scatter_that_never_settles_times_out, Fixture) {
  make(500ms);
  nccl.faults.settle_polls = 1 << 30;

  const auto error = error_of([&] { static_cast<void>(sharded.reduce(*comm)); });

  BOOST_TEST(says(error, "ncclReduceScatter was not made on " + me() + " within 0.5 s"));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(an_all_gather_that_never_settles_times_out, Fixture) {
  make(500ms);
  nccl.faults.settle_polls = 1 << 30;

  const auto error = error_of([&] { static_cast<void>(sharded.gather(*comm)); });

  BOOST_TEST(says(error, "ncclAllGather was not made on " + me() + " within 0.5 s"));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(an_all_gather_that_one_rank_never_runs_times_out_on_all_ranks, Fixture) {
  make(500ms);
  if (is_last()) nccl.faults.hanging = 1;
  const auto begin = Clock::now();

  Request reduction = sharded.reduce(*comm);
  comm->wait(reduction);
  Request gathering = sharded.gather(*comm);
  comm->wait(gathering);
  const auto error = error_of([&] { comm->synchronize(); });

  BOOST_TEST(says(error, "the collectives did not end on " + me() + " within 0.5 s"));
  BOOST_TEST((Clock::now() - begin < 10s));
  BOOST_TEST(nccl.counts().aborted == 1);
}

BOOST_FIXTURE_TEST_CASE(an_unrelated_exception_aborts_without_waiting_for_other_ranks, Fixture) {
  try {
    const auto mine = make_nccl_communicator(nccl, rendezvous, compute);
    throw std::runtime_error("bad sample");
  } catch (const std::runtime_error&) {
  }

  BOOST_TEST(nccl.counts().aborted == 1);
  BOOST_TEST(nccl.counts().finalized == 0);
}

BOOST_FIXTURE_TEST_CASE(a_hanging_finalize_is_aborted, Fixture) {
  make(500ms);
  nccl.faults.finalize_hangs = true;

  comm.reset();

  BOOST_TEST(nccl.counts().finalized == 1);
  BOOST_TEST(nccl.counts().destroyed == 0);
  BOOST_TEST(nccl.counts().aborted == 1);
}
