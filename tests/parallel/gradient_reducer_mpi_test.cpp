#include "../../src/parallel/gradient_reducer.hpp"

#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/philox.hpp"
#include "parallel/delaying_communicator.hpp"

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t tail = 24;

ArenaLayout odd_layout() {
  ArenaLayout layout;
  for (const std::size_t size : {10, 1000, 64, 64, 3000, 17, 1, 5000, 160, 27}) {
    layout.views.push_back({.parameter = static_cast<ParameterId>(layout.views.size()),
                            .kind = ParameterKind::weight,
                            .offset = layout.size(),
                            .size = size});
  }
  return layout;
}

std::vector<float> random_gradients(std::size_t size, int rank) {
  PhiloxStream random(21, RandomPurpose::synthetic_data, 0, static_cast<std::uint32_t>(rank));
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}

/// One step: gradients are written bucket by bucket, with the tail last.
std::vector<float> reduce(Communicator& comm, std::size_t bucket_bytes,
                          ElementType dtype = ElementType::f32) {
  const ArenaLayout layout = odd_layout();
  const std::vector<float> mine = random_gradients(layout.size() + tail, comm.rank());
  std::vector<float> arena(mine.size());
  const TailPlace place =
      dtype == ElementType::f32 ? TailPlace::last_bucket : TailPlace::separate_bucket;
  GradientReducer reducer(comm, arena, plan_buckets(layout, tail, bucket_bytes, place),
                          {.type = dtype, .gradients = layout.size()});
  reducer.begin();
  for (std::size_t i = 0; i < reducer.buckets().size(); ++i) {
    const Bucket& bucket = reducer.buckets()[i];
    std::copy(mine.begin() + static_cast<std::ptrdiff_t>(bucket.begin),
              mine.begin() + static_cast<std::ptrdiff_t>(bucket.end),
              arena.begin() + static_cast<std::ptrdiff_t>(bucket.begin));
    reducer.start_until(i + 1);
    reducer.progress();
  }
  for (std::size_t i = 0; i < reducer.buckets().size(); ++i) reducer.await(i);
  return arena;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_rank_ends_with_the_sum_over_ranks) {
  const std::unique_ptr<Communicator> comm = make_mpi_communicator();
  const std::size_t size = odd_layout().size() + tail;
  std::vector<double> expected(size);
  for (int rank = 0; rank < comm->size(); ++rank) {
    const std::vector<float> theirs = random_gradients(size, rank);
    for (std::size_t i = 0; i < size; ++i) expected[i] += theirs[i];
  }
  for (const std::size_t bytes : {0, 2000, 1 << 30}) {
    const std::vector<float> sum = reduce(*comm, bytes);

    double worst = 0;
    for (std::size_t i = 0; i < size; ++i) worst = std::max(worst, std::abs(sum[i] - expected[i]));
    BOOST_TEST(worst < 2e-6);  // four values of about one in fp32
  }
}

BOOST_AUTO_TEST_CASE(on_two_ranks_buckets_of_any_size_give_the_same_bits) {
  // With more ranks, a value's position in the message may decide the order of its sum.
  const std::unique_ptr<Communicator> comm = make_mpi_communicator();
  if (comm->size() > 2) return;
  const std::vector<float> one = reduce(*comm, std::size_t{1} << 30);

  for (const std::size_t bytes : {0, 300, 4000, 20000}) BOOST_TEST((reduce(*comm, bytes) == one));
}

BOOST_AUTO_TEST_CASE(all_ranks_have_the_same_bits) {
  const std::unique_ptr<Communicator> comm = make_mpi_communicator();
  const std::vector<float> mine = reduce(*comm, 2000);
  std::vector<float> roots = mine;

  comm->broadcast(std::span(roots));

  BOOST_TEST((mine == roots));
}

BOOST_AUTO_TEST_CASE(a_slow_link_does_not_change_the_sums) {
  const std::unique_ptr<Communicator> comm = make_mpi_communicator();
  test::DelayingCommunicator slow(*comm, 2ms, odd_layout().views.size());

  BOOST_TEST((reduce(slow, 2000) == reduce(*comm, 2000)));
}

BOOST_AUTO_TEST_CASE(gradients_in_16_bits_are_rounded_once_per_cast_and_sum) {
  const std::unique_ptr<Communicator> comm = make_mpi_communicator();
  const std::size_t gradients = odd_layout().size();
  std::vector<double> exact(gradients);
  std::vector<double> magnitudes(gradients);
  for (int rank = 0; rank < comm->size(); ++rank) {
    const std::vector<float> theirs = random_gradients(gradients + tail, rank);
    for (std::size_t i = 0; i < gradients; ++i) {
      exact[i] += theirs[i];
      magnitudes[i] += std::abs(theirs[i]);
    }
  }
  for (const auto& [type, unit] :
       {std::pair{ElementType::bf16, 0x1p-8}, {ElementType::f16, 0x1p-11}}) {
    const std::vector<float> sum = reduce(*comm, 4000, type);
    const std::vector<float> sum_in_fp32 = reduce(*comm, 4000);

    // Each cast of a rank's value, and each sum of two values, rounds by at most `unit` of the
    // value, or by 2^-25, half the step of fp16's subnormals. The factor covers second-order terms
    // and fp32's roundings.
    double worst = 0;
    for (std::size_t i = 0; i < gradients; ++i) {
      const double allowed = 1.01 * comm->size() * (unit * magnitudes[i] + 0x1p-25);
      worst = std::max(worst, std::abs(sum[i] - exact[i]) / allowed);
    }
    BOOST_TEST(worst <= 1);
    if (comm->size() > 1) BOOST_TEST(worst > 0.05);  // the reduction was in 16 bits
    // The tail counts samples, so it stays in fp32.
    BOOST_TEST((std::vector(sum.end() - tail, sum.end()) ==
                std::vector(sum_in_fp32.end() - tail, sum_in_fp32.end())));
    std::vector<float> roots = sum;
    comm->broadcast(std::span(roots));
    BOOST_TEST((sum == roots));
    if (comm->size() == 1) BOOST_TEST((sum == sum_in_fp32));
  }
}

BOOST_AUTO_TEST_CASE(gradients_in_16_bits_take_half_the_bytes) {
  const std::unique_ptr<Communicator> comm = make_mpi_communicator();
  if (comm->size() == 1) return;
  const std::size_t gradients = odd_layout().size();
  const auto bytes = [&](ElementType type) {
    test::DelayingCommunicator counting(*comm, 0ms, 20);
    reduce(counting, 4000, type);
    return counting.bytes();
  };

  BOOST_TEST(bytes(ElementType::f32) == (gradients + tail) * 4);
  BOOST_TEST(bytes(ElementType::bf16) == gradients * 2 + tail * 4);
  BOOST_TEST(bytes(ElementType::f16) == gradients * 2 + tail * 4);
}
