#include "lockstep/comm/nccl_communicator.hpp"
#include "comm/allocation_count.hpp"
#include "comm/communicator_suite.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/nccl_stand_in.hpp"
#include "comm/on_device.hpp"
#include "comm/sharded_step.hpp"
#include "comm/test_seeds.hpp"
#include "lockstep/comm/mpi_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A stand-in, a compute stream and a communicator over them.
struct Fixture {
  /// 0: what NCCL leaves open does not vary.
  explicit Fixture(std::uint64_t seed = 0) {
    nccl.vary(seed);
    BOOST_TEST_REQUIRE((nccl.stream_create(&compute) == CudaResult::success));
    comm = make_nccl_communicator(nccl, rendezvous, compute, {.progress = &progress});
    nccl.count_from_here();
  }
  [[nodiscard]] std::vector<int> all_ranks() const {
    std::vector<int> ranks(static_cast<std::size_t>(rendezvous.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  [[nodiscard]] MutableBuffer on_device(std::vector<float>& values) const {
    return {device_address(values.data()), values.size(), ElementType::f32};
  }
  [[nodiscard]] static std::span<std::byte> bytes_on_device(std::vector<float>& values) {
    return {static_cast<std::byte*>(device_address(values.data())), values.size() * sizeof(float)};
  }
  Rendezvous rendezvous;
  DeviceProgress progress;
  NcclStandIn nccl;
  CudaStream compute = nullptr;
  std::unique_ptr<DeviceCommunicator> comm;
};

/// Work of a stream that ends when it is told to.
struct Gate final : StandInTask {
  bool open = false;
  [[nodiscard]] bool attempt() override { return open; }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(the_nccl_communicator_passes_the_suite, Fixture) {
  OnDevice host_side(*comm);

  check_communicator(host_side, {0, 1, 3, 1000, 10003});
}

BOOST_FIXTURE_TEST_CASE(the_suite_passes_if_calls_queue_collectives_at_once, Fixture) {
  nccl.faults.settle_polls = 0;
  OnDevice host_side(*comm);

  check_communicator(host_side, {17});
}

BOOST_FIXTURE_TEST_CASE(the_suite_passes_if_collectives_are_queued_after_their_call, Fixture) {
  nccl.faults.success_early = true;
  OnDevice host_side(*comm);

  check_communicator(host_side, {17});
}

BOOST_FIXTURE_TEST_CASE(a_reduction_runs_after_work_queued_before_it, Fixture) {
  std::vector<float> gradients(1000, -1.0F);
  nccl.queues.delays.kernel = 50;
  nccl.queues.launch(compute, [&] { gradients.assign(1000, 1.0F); });

  Request request = comm->start_all_reduce_buffer(on_device(gradients), ReduceOp::sum);
  const bool still_to_be_computed = gradients[0] == -1.0F;
  comm->wait(request);
  comm->synchronize();

  BOOST_TEST(still_to_be_computed);
  BOOST_TEST((gradients == std::vector<float>(1000, static_cast<float>(comm->size()))));
}

BOOST_FIXTURE_TEST_CASE(work_queued_after_a_wait_reads_the_sums, Fixture) {
  std::vector<float> gradients(1000, 1.0F);
  std::vector<float> seen;

  Request request = comm->start_all_reduce_buffer(on_device(gradients), ReduceOp::sum);
  comm->wait(request);
  const int made_when_wait_returned = nccl.counts().collectives;
  nccl.queues.launch(compute, [&] { seen = gradients; });
  comm->synchronize();

  BOOST_TEST(made_when_wait_returned == 0);
  BOOST_TEST(request.done());
  BOOST_TEST((seen == std::vector<float>(1000, static_cast<float>(comm->size()))));
}

BOOST_FIXTURE_TEST_CASE(a_sharded_step_runs_in_stream_order, Fixture) {
  check_sharded_step(*comm, nccl.queues, compute);
}

BOOST_FIXTURE_TEST_CASE(the_compute_stream_runs_during_a_reduction, Fixture) {
  std::vector<float> gradients(10, 1.0F);
  int reductions_before = -1;
  nccl.queues.delays.task = 100;

  Request request = comm->start_all_reduce_buffer(on_device(gradients), ReduceOp::sum);
  nccl.queues.launch(compute, [&] { reductions_before = nccl.counts().collectives; });
  while (!comm->test(request)) {
  }

  BOOST_TEST(reductions_before == 0);
}

BOOST_FIXTURE_TEST_CASE(requests_complete_in_any_order_and_slots_are_reused, Fixture) {
  std::vector<std::vector<float>> buffers;
  for (std::size_t i = 0; i < 9; ++i) buffers.emplace_back(1 + i * 503, static_cast<float>(i));
  for (int step = 0; step < 3; ++step) {
    std::vector<Request> requests;
    requests.reserve(buffers.size());
    for (auto& buffer : buffers)
      requests.push_back(comm->start_all_reduce_buffer(on_device(buffer), ReduceOp::max));
    for (std::size_t i = 9; i-- > 0;) {
      if (i % 2 == 0) comm->wait(requests[i]);
    }
    for (Request& request : requests) {
      while (!comm->test(request)) {
      }
      comm->wait(request);
    }
  }
  comm->synchronize();

  for (std::size_t i = 0; i < 9; ++i)
    BOOST_TEST((buffers[i] == std::vector<float>(1 + i * 503, static_cast<float>(i))));
  BOOST_TEST(nccl.counts().collectives == 27);
}

BOOST_FIXTURE_TEST_CASE(a_stream_capture_makes_no_query, Fixture) {
  std::vector<float> gradients(10, 1.0F);

  nccl.queues.capturing = true;
  Request request = comm->start_all_reduce_buffer(on_device(gradients), ReduceOp::sum);
  const bool done = comm->test(request);
  comm->wait(request);
  nccl.queues.capturing = false;
  comm->synchronize();

  BOOST_TEST(!done);
  BOOST_TEST(gradients[9] == static_cast<float>(comm->size()));
}

BOOST_FIXTURE_TEST_CASE(steps_after_the_first_allocate_nothing, Fixture) {
  std::vector<float> values(4000, 1.0F);
  ShardedStep sharded(*comm, 500);
  std::vector<Request> requests(6);
  const auto step = [&](int tests) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::span<float> bucket = std::span(values).subspan(i * 1000, 1000);
      requests[i] = comm->start_all_reduce_buffer(
          {device_address(bucket.data()), bucket.size(), ElementType::f32}, ReduceOp::max);
      for (int k = 0; k < tests; ++k) comm->test(requests[i]);
    }
    requests[4] = sharded.reduce(*comm);
    requests[5] = sharded.gather(*comm);
    for (Request& request : requests) comm->wait(request);
    comm->synchronize();
  };
  // In the first step, requests end one at a time; later, all are in flight together.
  step(1000);
  const int made = nccl.queues.live();
  step(0);

  const long before = allocation_count();
  for (int i = 0; i < 50; ++i) step(i % 3);

  BOOST_TEST(allocation_count() - before == 0);
  BOOST_TEST(nccl.queues.live() == made);
}

BOOST_FIXTURE_TEST_CASE(destruction_finalizes_nccl_and_frees_everything, Fixture) {
  const auto arena = std::make_shared<std::vector<float>>(100, 1.0F);
  const auto own = std::make_shared<std::vector<float>>(10, 1.0F);
  comm->register_memory({.bytes = bytes_on_device(*arena), .owner = arena, .symmetric = true});
  comm->register_memory({.bytes = bytes_on_device(*own), .owner = own});
  Request request = comm->start_all_reduce_buffer(on_device(*arena), ReduceOp::sum);
  comm->wait(request);
  comm->synchronize();

  BOOST_TEST(nccl.counts().registered == 2);
  BOOST_TEST(nccl.counts().windows == 1);
  BOOST_TEST(nccl.counts().unknown == 0);
  BOOST_TEST(nccl.counts().misuses == 0);
  BOOST_TEST(arena.use_count() == 2);  // kept alive while NCCL has it registered

  comm.reset();
  nccl.stream_destroy(compute);

  BOOST_TEST(nccl.counts().registered == 0);
  BOOST_TEST(nccl.counts().windows == 0);
  BOOST_TEST(arena.use_count() == 1);
  BOOST_TEST(own.use_count() == 1);
  BOOST_TEST(nccl.counts().finalized == 1);
  BOOST_TEST(nccl.counts().destroyed == 1);
  BOOST_TEST(nccl.counts().aborted == 0);
  BOOST_TEST(nccl.counts().allocated == 0);
  BOOST_TEST(nccl.queues.live() == 0);
}

BOOST_FIXTURE_TEST_CASE(without_nccl_windows_each_rank_registers_its_memory, Fixture) {
  nccl.faults.no_windows = true;
  const auto arena = std::make_shared<std::vector<float>>(100, 1.0F);

  comm->register_memory({.bytes = bytes_on_device(*arena), .owner = arena, .symmetric = true});

  BOOST_TEST(nccl.counts().registered == 1);
  BOOST_TEST(nccl.counts().windows == 0);
  comm.reset();
  nccl.stream_destroy(compute);
  BOOST_TEST(nccl.counts().registered == 0);
  BOOST_TEST(nccl.counts().aborted == 0);
}

BOOST_FIXTURE_TEST_CASE(memory_is_no_window_if_settings_forbid_windows, Fixture) {
  comm.reset();
  nccl.add(std::vector<std::vector<int>>{all_ranks()});
  comm = make_nccl_communicator(nccl, rendezvous, compute, {.settings = {.windows = false}});
  const auto arena = std::make_shared<std::vector<float>>(100, 1.0F);

  comm->register_memory({.bytes = bytes_on_device(*arena), .owner = arena, .symmetric = true});

  BOOST_TEST(nccl.counts().registered == 1);
  BOOST_TEST(nccl.counts().windows == 0);
}

BOOST_AUTO_TEST_CASE(the_suite_passes_whatever_nccl_leaves_open) {
  for (const std::uint64_t seed : seeds()) {
    BOOST_TEST_CONTEXT("LOCKSTEP_TEST_SEEDS=" << seed) {
      const auto arena = std::make_shared<std::vector<float>>(100, 1.0F);
      const auto own = std::make_shared<std::vector<float>>(10, 1.0F);
      Fixture rig(seed);
      OnDevice host_side(*rig.comm);
      check_communicator(host_side, {0, 17, 1000});
      check_many_requests(host_side);
      check_sharded_step(*rig.comm, rig.nccl.queues, rig.compute);

      rig.comm->register_memory(
          {.bytes = Fixture::bytes_on_device(*arena), .owner = arena, .symmetric = true});
      rig.comm->register_memory({.bytes = Fixture::bytes_on_device(*own), .owner = own});
      const int windows = rig.nccl.counts().windows;
      const int most = make_mpi_communicator()->all_reduce_value(windows, ReduceOp::max);
      rig.comm->all_reduce_buffer(rig.on_device(*arena), ReduceOp::sum);

      BOOST_TEST(windows == most);
      BOOST_TEST(rig.nccl.counts().registered == 2);
      BOOST_TEST((*arena)[99] == static_cast<float>(rig.comm->size()));
      rig.comm.reset();
      rig.nccl.stream_destroy(rig.compute);
      BOOST_TEST(rig.nccl.counts().misuses == 0);
      BOOST_TEST(rig.nccl.counts().registered == 0);
      BOOST_TEST(rig.nccl.counts().destroyed == 1 + rig.nccl.counts().split);
      BOOST_TEST(rig.nccl.counts().aborted == 0);
      BOOST_TEST(rig.nccl.counts().allocated == 0);
      BOOST_TEST(rig.nccl.queues.live() == 0);
    }
  }
}

BOOST_FIXTURE_TEST_CASE(collectives_are_counted_when_queued_reached_and_completed, Fixture) {
  // More than have events of their own.
  for (const std::uint64_t count : {2U, 1500U}) {
    const std::uint64_t before = progress.read().completed;
    std::vector<std::vector<float>> values(count, std::vector<float>(3, 1.0F));
    Gate gate;
    nccl.queues.queue(compute, gate);
    std::vector<Request> requests;
    requests.reserve(values.size());
    for (auto& each : values) {
      requests.push_back(comm->start_all_reduce_buffer(on_device(each), ReduceOp::sum));
    }
    for (Request& request : requests) comm->wait(request);

    int polls = 0;
    DeviceProgress::Reading closed;
    comm->synchronize_until([&] {
      closed = progress.read();
      return ++polls == 10;
    });
    gate.open = true;
    comm->synchronize_until([&] { return nccl.queues.is_idle(compute); });
    const DeviceProgress::Reading opened = progress.read();

    BOOST_TEST(closed.awaited == (count == 2));  // with fewer events than collectives, not exact
    BOOST_TEST(closed.reached == before);
    BOOST_TEST(closed.completed == before);
    BOOST_TEST(opened.reached == before + count);
    BOOST_TEST(opened.completed == before + count);
    BOOST_TEST(!opened.awaited);
  }
}

BOOST_FIXTURE_TEST_CASE(captured_collectives_are_not_counted, Fixture) {
  std::vector<float> gradients(10, 1.0F);

  nccl.queues.capturing = true;
  Request request = comm->start_all_reduce_buffer(on_device(gradients), ReduceOp::sum);
  comm->wait(request);
  nccl.queues.capturing = false;
  comm->synchronize();

  BOOST_TEST(progress.read().completed == 0);
}
