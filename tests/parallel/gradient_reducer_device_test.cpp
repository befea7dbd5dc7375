#include "../../src/parallel/gradient_reducer.hpp"

#include "comm/mpi_fixture.hpp"
#include "comm/nccl_stand_in.hpp"
#include "comm/on_device.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/staged_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::size_t tail = 24;
constexpr std::size_t view = 512;  // without gaps in the arena
constexpr std::size_t views = 10;
constexpr std::size_t arena_size = view * views + tail;

ArenaLayout layout() {
  ArenaLayout result;
  for (std::size_t i = 0; i < views; ++i) {
    result.views.push_back({.parameter = static_cast<ParameterId>(i),
                            .kind = ParameterKind::weight,
                            .offset = i * view,
                            .size = view});
  }
  return result;
}

/// Integers, whose sums are exact in any order and in 16 bits.
float gradient(std::size_t i, int rank) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 41) - 20.0F;
}
std::vector<float> expected_sums(int ranks) {
  std::vector<float> sums(arena_size);
  for (std::size_t i = 0; i < arena_size; ++i) {
    for (int rank = 0; rank < ranks; ++rank) sums[i] += gradient(i, rank);
  }
  return sums;
}

/// The communicators of a device, each with its own streams.
struct Fixture {
  Fixture() {
    BOOST_TEST_REQUIRE((nccl.stream_create(&compute) == CudaResult::success));
    nccl.queues.delays = {.kernel = 9, .copy = 5, .task = 3};
    communicators.push_back(make_nccl_communicator(nccl, rendezvous, compute));
    communicators.push_back(make_staged_communicator(nccl, make_mpi_communicator(), compute));
  }
  Rendezvous rendezvous;
  NcclStandIn nccl;
  CudaStream compute = nullptr;
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(gradients_of_queued_kernels_are_summed_and_used_in_stream_order, Fixture) {
  for (const auto& comm : communicators) {
    for (const std::size_t bucket_bytes : {0U, 3000U, 1U << 30U}) {
      std::vector<float> arena(arena_size, -1000.0F);
      std::vector<float> parameters(arena_size);
      const auto write = [&](std::size_t begin, std::size_t end) {
        nccl.queues.launch(compute, [&arena, begin, end, rank = comm->rank()] {
          for (std::size_t i = begin; i < end; ++i) arena[i] = gradient(i, rank);
        });
      };
      const std::vector<Bucket> buckets = plan_buckets(layout(), tail, bucket_bytes);
      GradientReducer reducer(
          *comm, std::span(static_cast<float*>(device_address(arena.data())), arena_size), buckets);

      reducer.begin();
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        write(buckets[i].begin, buckets[i].end);
        reducer.start_until(i + 1);
      }
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        reducer.await(i);
        nccl.queues.launch(compute, [&arena, &parameters, bucket = buckets[i]] {
          for (std::size_t k = bucket.begin; k < bucket.end; ++k) parameters[k] -= arena[k];
        });
      }
      comm->synchronize();

      std::vector<float> updated = expected_sums(comm->size());
      BOOST_TEST((arena == updated));
      for (float& value : updated) value = -value;
      BOOST_TEST((parameters == updated));
    }
  }
}

BOOST_FIXTURE_TEST_CASE(sums_equal_those_of_mpi_in_any_communication_type, Fixture) {
  const auto mpi = make_mpi_communicator();
  const auto reduce = [](Communicator& comm, ElementType dtype) {
    std::vector<float> arena(arena_size);
    for (std::size_t i = 0; i < arena_size; ++i) arena[i] = gradient(i, comm.rank());
    GradientReducer reducer(comm, arena,
                            plan_buckets(layout(), tail, 3000, TailPlace::separate_bucket),
                            {.type = dtype, .gradients = view * views});
    reducer.begin();
    reducer.start_until(reducer.buckets().size());
    for (std::size_t i = 0; i < reducer.buckets().size(); ++i) reducer.await(i);
    return arena;
  };
  for (const auto& comm : communicators) {
    OnDevice host_side(*comm);
    for (const ElementType dtype : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
      const std::vector<float> sums = reduce(host_side, dtype);

      BOOST_TEST((sums == reduce(*mpi, dtype)));
      BOOST_TEST((sums == expected_sums(comm->size())));
    }
  }
}
