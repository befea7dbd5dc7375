#include "lockstep/comm/staged_communicator.hpp"
#include "comm/allocation_count.hpp"
#include "comm/communicator_suite.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/nccl_stand_in.hpp"
#include "comm/on_device.hpp"
#include "comm/recording_communicator.hpp"
#include "comm/sharded_step.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/rendezvous.hpp"
#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

struct Fixture {
  Fixture() {
    BOOST_TEST_REQUIRE((cuda.stream_create(&compute) == CudaResult::success));
    make(20s);
  }
  void make(std::chrono::milliseconds limit) {
    comm = make_staged_communicator(cuda, make_mpi_communicator(), compute, {.wait_limit = limit});
  }
  [[nodiscard]] static MutableBuffer on_device(std::span<float> values) {
    return {device_address(values.data()), values.size(), ElementType::f32};
  }
  [[nodiscard]] Request start(std::span<float> values, ReduceOp op = ReduceOp::sum) const {
    return comm->start_all_reduce_buffer(on_device(values), op);
  }
  [[nodiscard]] bool is_last() const { return comm->rank() == comm->size() - 1; }
  [[nodiscard]] float ranks() const { return static_cast<float>(comm->size()); }

  Rendezvous rendezvous;
  NcclStandIn cuda;
  CudaStream compute = nullptr;
  std::unique_ptr<DeviceCommunicator> comm;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(the_staged_communicator_passes_the_suite, Fixture) {
  OnDevice host_side(*comm);

  check_communicator(host_side, {0, 1, 3, 1000, 10003});
}

BOOST_FIXTURE_TEST_CASE(a_reduction_runs_after_work_queued_before_it, Fixture) {
  std::vector<float> gradients(1000, -1.0F);
  cuda.queues.delays.kernel = 50;
  cuda.queues.launch(compute, [&] { gradients.assign(1000, 1.0F); });

  Request request = start(gradients);
  const bool still_to_be_computed = gradients[0] == -1.0F;
  comm->wait(request);
  comm->synchronize();

  BOOST_TEST(still_to_be_computed);
  BOOST_TEST((gradients == std::vector<float>(1000, ranks())));
}

BOOST_FIXTURE_TEST_CASE(work_queued_after_a_wait_reads_the_sums, Fixture) {
  std::vector<float> gradients(1000, 1.0F);
  std::vector<float> seen;
  cuda.queues.delays.copy = 50;

  Request request = start(gradients);
  comm->wait(request);
  cuda.queues.launch(compute, [&] { seen = gradients; });
  comm->synchronize();

  BOOST_TEST(request.done());
  BOOST_TEST((seen == std::vector<float>(1000, ranks())));
}

BOOST_FIXTURE_TEST_CASE(a_sharded_step_runs_in_stream_order, Fixture) {
  check_sharded_step(*comm, cuda.queues, compute);
}

BOOST_FIXTURE_TEST_CASE(a_result_does_not_wait_for_a_later_buckets_kernels, Fixture) {
  std::vector<float> first(100, 1.0F);
  std::vector<float> second(100, 1.0F);
  bool computed = false;

  Request one = start(first);
  cuda.queues.delays.kernel = 1 << 30;
  cuda.queues.launch(compute, [&] { computed = true; });
  Request other = start(second);
  while (!comm->test(one)) {
  }

  BOOST_TEST(first[99] == ranks());
  BOOST_TEST(!computed);
  BOOST_TEST(!comm->test(other));
}

BOOST_FIXTURE_TEST_CASE(all_ranks_call_the_host_communicator_in_the_same_order, Fixture) {
  std::vector<std::int64_t> calls;
  comm = make_staged_communicator(
      cuda, std::make_unique<RecordingCommunicator>(make_mpi_communicator(), calls), compute);
  // Ranks copy and compute at different speeds, test different requests, and block in between.
  cuda.queues.delays.copy = 7 * comm->rank();
  cuda.queues.delays.kernel = 20 * (comm->size() - comm->rank());
  const auto ranks_there = static_cast<std::size_t>(comm->size());
  std::vector<std::vector<float>> buffers;
  for (std::size_t i = 0; i < 8; ++i) buffers.emplace_back(1 + i * 503, 1.0F);
  std::vector<float> mine(30, static_cast<float>(comm->rank() + 5));
  std::vector<float> all(30 * ranks_there, 1.0F);
  std::vector<float> scattered(30);
  std::vector<float> gathered(30 * ranks_there);
  const ConstBuffer mine_there{device_address(mine.data()), mine.size(), ElementType::f32};
  const ConstBuffer all_there{device_address(all.data()), all.size(), ElementType::f32};
  std::vector<Request> requests;

  for (std::size_t i = 0; i < 8; ++i) {
    cuda.queues.launch(compute, [&buffers, i] { buffers[i].assign(buffers[i].size(), 2.0F); });
    requests.push_back(start(buffers[i]));
    for (int k = 0; k < 11 * comm->rank(); ++k) comm->test(requests[i / 2]);
    if (i == 0) comm->barrier();
    if (i == 1) comm->all_reduce_buffer(on_device(mine), ReduceOp::max);
    if (i == 2) comm->broadcast_buffer(on_device(mine), 0);
    if (i == 3) comm->all_gather_buffer(mine_there, on_device(all));
    if (i == 4) comm->gather_buffer(mine_there, on_device(all), 0);
    if (i == 5) comm->scatter_buffer(all_there, on_device(mine), 0);
    if (i == 6) comm->reduce_scatter_buffer(all_there, on_device(mine), ReduceOp::max);
  }
  requests.push_back(
      comm->start_reduce_scatter_buffer(all_there, on_device(scattered), ReduceOp::max));
  requests.push_back(comm->start_all_gather_buffer(mine_there, on_device(gathered)));
  for (std::size_t i = requests.size(); i-- > 0;) comm->wait(requests[i]);
  comm->synchronize();

  for (const auto& buffer : buffers)
    BOOST_TEST((buffer == std::vector<float>(buffer.size(), 2 * ranks())));
  BOOST_TEST((mine == std::vector<float>(30, ranks() + 4)));
  BOOST_TEST((scattered == mine));
  BOOST_TEST((gathered == all));
  // Each of the eight all-reduces starts before the next blocking call.
  const std::vector<std::int64_t> in_program_order{8, 1,    1,  0,  8, 504,  8, 30, 8,  1007, 3, 30,
                                                   8, 1510, 10, 30, 8, 2013, 5, 30, 8,  2516, 6, 30,
                                                   8, 3019, 9,  30, 8, 3522, 9, 30, 10, 30};
  BOOST_TEST((calls == in_program_order));
}

BOOST_FIXTURE_TEST_CASE(steps_after_the_first_allocate_nothing, Fixture) {
  std::vector<float> values(4000, 1.0F);
  ShardedStep sharded(*comm, 500);
  std::vector<Request> requests(6);
  const auto step = [&](int tests) {
    for (std::size_t i = 0; i < 4; ++i) {
      requests[i] = start(std::span(values).subspan(i * 1000, 1000), ReduceOp::max);
      for (int k = 0; k < tests; ++k) comm->test(requests[i]);
    }
    requests[4] = sharded.reduce(*comm);
    requests[5] = sharded.gather(*comm);
    for (Request& request : requests) comm->wait(request);
    comm->synchronize();
    comm->broadcast_buffer(on_device(values), 0);
  };
  // In the first step, requests may end one at a time; later, all are in flight together.
  step(1000);
  const int made = cuda.queues.live();
  const int allocated = cuda.counts().allocated;
  step(0);

  const long before = allocation_count();
  for (int i = 0; i < 50; ++i) step(i % 3);

  BOOST_TEST(allocation_count() - before == 0);
  BOOST_TEST(cuda.queues.live() == made);
  BOOST_TEST(cuda.counts().allocated == allocated);
}

BOOST_FIXTURE_TEST_CASE(destruction_frees_everything, Fixture) {
  std::vector<float> values(100, 1.0F);
  comm->all_reduce_buffer(on_device(values), ReduceOp::sum);
  comm->broadcast_buffer(on_device(values), 0);

  comm.reset();
  cuda.stream_destroy(compute);

  BOOST_TEST(cuda.counts().allocated == 0);
  BOOST_TEST(cuda.queues.live() == 0);
}

BOOST_FIXTURE_TEST_CASE(a_stream_capture_is_refused, Fixture) {
  std::vector<float> values(100, 1.0F);
  cuda.queues.capturing = true;

  BOOST_CHECK_EXCEPTION(static_cast<void>(start(values)), Error, [&](const Error& error) {
    return error.status() == ExitStatus::internal &&
           std::string(error.what()).find("captured on " + rendezvous.name(comm->rank())) !=
               std::string::npos;
  });
}

BOOST_FIXTURE_TEST_CASE(if_a_rank_does_not_take_part_the_others_time_out, Fixture) {
  make(500ms);
  const auto apart = make_mpi_communicator();
  std::vector<float> values(100, 1.0F);
  const auto ends_by_its_limit = [&](const std::string& what, auto&& work) {
    BOOST_CHECK_EXCEPTION(work(), Error, [&](const Error& error) {
      return error.status() == ExitStatus::internal &&
             std::string(error.what())
                     .find(what + " did not end on " + rendezvous.name(comm->rank()) +
                           " within 0.5 s") == 0U;
    });
  };
  if (comm->size() == 1) return;

  ShardedStep sharded(*comm, 100);
  std::array<Request, 3> requests;
  const auto start_all = [&] {
    requests = {start(values), sharded.reduce(*comm), sharded.gather(*comm)};
  };
  if (!is_last()) {
    start_all();
    ends_by_its_limit("an all-reduce through the host", [&] { comm->wait(requests[0]); });
    ends_by_its_limit("a reduce-scatter through the host", [&] { comm->wait(requests[1]); });
    ends_by_its_limit("an all-gather through the host", [&] { comm->wait(requests[2]); });
  }
  apart->barrier();
  // Completes the collectives, so that MPI can finalize.
  if (is_last()) start_all();
  for (Request& request : requests) {
    while (!comm->test(request)) {
    }
  }
}

BOOST_FIXTURE_TEST_CASE(a_wait_for_work_that_never_ends_times_out, Fixture) {
  make(500ms);

  BOOST_CHECK_EXCEPTION(comm->synchronize_until([] { return false; }), Error,
                        [&](const Error& error) {
                          return std::string(error.what())
                                     .find("the work of a step did not end on " +
                                           rendezvous.name(comm->rank()) + " within 0.5 s") == 0U;
                        });
}

BOOST_FIXTURE_TEST_CASE(a_wait_for_a_hanging_device_times_out, Fixture) {
  make(500ms);
  cuda.queues.delays.kernel = 1 << 30;
  cuda.queues.launch(compute, [] {});

  BOOST_CHECK_EXCEPTION(comm->synchronize(), Error, [&](const Error& error) {
    return std::string(error.what())
               .find("the compute stream did not end on " + rendezvous.name(comm->rank()) +
                     " within 0.5 s") == 0U;
  });
}
