#include <boost/test/unit_test.hpp>

#include "comm/allocation_count.hpp"
#include "comm/communicator_suite.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/without_files.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/shared_memory_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

constexpr std::size_t small = 16384;  ///< bytes of a window, so that messages need many pieces

/// A communicator over shared memory, and the MPI communicator under it.
struct Shared {
  std::unique_ptr<Communicator> mpi = make_mpi_communicator();
  std::unique_ptr<Communicator> comm;
  explicit Shared(std::size_t bytes = small)
      : comm(make_shared_memory_communicator(*mpi, {.bytes = bytes}).communicator) {}
};

bool is_alone() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size == 1;
}

std::vector<float> random_values(std::size_t count, int rank) {
  PhiloxStream random(5, RandomPurpose::synthetic_data, 0, static_cast<std::uint32_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}

std::vector<float> sum_in_order_of_ranks(std::size_t count, int ranks) {
  std::vector<float> sum = random_values(count, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> theirs = random_values(count, rank);
    for (std::size_t i = 0; i < count; ++i) sum[i] += theirs[i];
  }
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_single_rank_gets_no_shared_memory) {
  if (!is_alone()) return;
  const auto mpi = make_mpi_communicator();
  const SharedMemoryResult result = make_shared_memory_communicator(*mpi);
  BOOST_TEST(!result.communicator);
  BOOST_TEST(result.reason == "there is one rank alone");
}

BOOST_AUTO_TEST_CASE(ranks_of_one_host_pass_the_suite) {
  if (is_alone()) return;
  for (const std::size_t bytes : {small, std::size_t{0}}) {
    const Shared shared(bytes);
    BOOST_REQUIRE(shared.comm);
    test::check_communicator(*shared.comm, {0, 1, 2, 3, 17, 1000, 100003});
  }
}

BOOST_AUTO_TEST_CASE(sums_are_in_rank_order_at_every_position) {
  if (is_alone()) return;
  const Shared shared;
  Communicator& comm = *shared.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (const std::size_t block : {1UL, 15UL, 1000UL, 54321UL}) {
    const std::size_t count = block * ranks;
    const std::vector<float> expected = sum_in_order_of_ranks(count, comm.size());
    const std::vector<float> mine = random_values(count, comm.rank());
    std::vector<float> reduced = mine;
    std::vector<float> part(block);
    std::vector<float> gathered(count);
    comm.all_reduce(std::span(reduced));
    comm.reduce_scatter(std::span<const float>(mine), std::span(part));
    comm.all_gather(std::span<const float>(part), std::span(gathered));
    BOOST_TEST((reduced == expected));
    BOOST_TEST((gathered == expected));
    // The same for a message that begins one value later.
    std::vector<float> behind(mine.begin() + 1, mine.end());
    comm.all_reduce(std::span(behind));
    BOOST_TEST(std::equal(behind.begin(), behind.end(), expected.begin() + 1));
  }
}

BOOST_AUTO_TEST_CASE(sums_of_16_bits_are_rounded_once) {
  if (is_alone()) return;
  const Shared shared;
  Communicator& comm = *shared.comm;
  const auto check = [&]<typename T>(T) {
    constexpr std::size_t count = 7001;
    std::vector<float> sum(count);
    std::vector<T> values(count);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const std::vector<float> theirs = random_values(count, rank);
      for (std::size_t i = 0; i < count; ++i) {
        sum[i] += float{T(theirs[i])};
        if (rank == comm.rank()) values[i] = T(theirs[i]);
      }
    }
    comm.all_reduce(std::span(values));
    bool same = true;
    for (std::size_t i = 0; i < count; ++i) same = same && float{values[i]} == float{T(sum[i])};
    BOOST_TEST(same);
  };
  check(Bfloat16{});
  check(Float16{});
}

BOOST_AUTO_TEST_CASE(not_a_number_and_infinity_reach_every_rank) {
  if (is_alone()) return;
  const Shared shared;
  const bool last = shared.comm->rank() == shared.comm->size() - 1;
  std::vector<float> values(100, 1.0F);
  values[3] = last ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
  values[97] = last ? std::numeric_limits<float>::infinity() : 1.0F;
  shared.comm->all_reduce(std::span(values));
  BOOST_TEST(std::isnan(values[3]));
  BOOST_TEST(std::isinf(values[97]));
  BOOST_TEST(values[98] == static_cast<float>(shared.comm->size()));
}

BOOST_AUTO_TEST_CASE(many_requests_in_flight_complete_in_any_order) {
  if (is_alone()) return;
  test::check_many_requests(*Shared().comm);
}

BOOST_AUTO_TEST_CASE(the_ring_of_operations_grows_wherever_it_begins) {
  if (is_alone()) return;
  const auto other = make_mpi_communicator();
  for (const int before : {0, 1, 40, 63}) {
    const Shared shared;
    Communicator& comm = *shared.comm;
    float value = 1;
    for (int i = 0; i < before; ++i) comm.all_reduce(std::span(&value, 1));
    std::vector<float> values(150);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    std::vector<Request> requests;
    // Nothing ends on the first rank before the last rank takes part.
    if (comm.rank() == comm.size() - 1) other->barrier();
    for (float& each : values) requests.push_back(comm.start_all_reduce(std::span(&each, 1)));
    if (comm.rank() != comm.size() - 1) other->barrier();
    for (Request& request : requests) comm.wait(request);
    for (std::size_t i = 0; i < values.size(); ++i) {
      BOOST_TEST(values[i] == static_cast<float>(i) * static_cast<float>(comm.size()));
    }
  }
}

BOOST_AUTO_TEST_CASE(requests_of_both_kinds_have_distinct_slots_that_are_reused) {
  if (is_alone()) return;
  const Shared shared;
  std::vector<float> values(10);
  std::vector<double> more(10);
  for (int step = 0; step < 1000; ++step) {
    Request own = shared.comm->start_all_reduce(std::span(values));
    Request inner = shared.comm->start_all_reduce(std::span(more));
    BOOST_TEST_REQUIRE(own.slot != inner.slot);
    BOOST_TEST_REQUIRE(std::max(own.slot, inner.slot) < 4);  // WatchedCommunicator indexes by it
    shared.comm->wait(inner);
    shared.comm->wait(own);
  }
}

BOOST_AUTO_TEST_CASE(data_that_a_slow_rank_has_not_read_is_not_overwritten) {
  if (is_alone()) return;
  const Shared shared;
  Communicator& comm = *shared.comm;
  constexpr std::size_t count = 100000;  // many times a window's capacity
  for (int slow = 0; slow < comm.size(); ++slow) {
    std::vector<std::vector<float>> buffers(3, random_values(count, comm.rank()));
    std::vector<Request> requests;
    for (auto& buffer : buffers) {
      requests.push_back(comm.start_all_reduce(std::span(buffer)));
      if (comm.rank() == slow) std::this_thread::sleep_for(20ms);
    }
    for (Request& request : requests) {
      while (!comm.test(request)) {
        if (comm.rank() == slow) std::this_thread::sleep_for(100us);
      }
    }
    const std::vector<float> expected = sum_in_order_of_ranks(count, comm.size());
    for (const auto& buffer : buffers) BOOST_TEST((buffer == expected));
  }
}

BOOST_AUTO_TEST_CASE(requests_of_several_communicators_complete_in_any_order) {
  if (is_alone()) return;
  const Shared one;
  const Shared other;
  test::check_requests_of_several(*one.comm, *other.comm, *one.mpi);
}

BOOST_AUTO_TEST_CASE(steps_after_the_first_allocate_nothing) {
  if (is_alone()) return;
  const Shared shared;
  Communicator& comm = *shared.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<float> values(4000, 1.0F);
  std::vector<float> all(300 * ranks, 1.0F);
  std::vector<float> mine(300);
  std::vector<Request> requests(6);
  const auto step = [&] {
    for (std::size_t i = 0; i < 4; ++i) {
      requests[i] = comm.start_all_reduce(std::span(values).subspan(i * 1000, 1000));
    }
    requests[4] = comm.start_reduce_scatter(std::span<const float>(all), std::span(mine));
    requests[5] = comm.start_all_gather(std::span<const float>(mine), std::span(all));
    for (Request& request : requests) comm.wait(request);
  };
  step();
  const long before = test::allocation_count();
  for (int i = 0; i < 50; ++i) step();
  BOOST_TEST(test::allocation_count() - before == 0);
}

BOOST_AUTO_TEST_CASE(a_long_wait_sleeps) {
  if (is_alone()) return;
  const Shared shared;
  // A yield is no voluntary switch: the thread could go on.
  const auto switches = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  // On a busy machine a rank may itself be so late that it need not wait, but hardly each time.
  long most = 0;
  for (int time = 0; time < 3; ++time) {
    if (shared.mpi->rank() == 0) std::this_thread::sleep_for(200ms);
    std::vector<float> values(100, 1.0F);
    const long before = switches();
    shared.comm->all_reduce(std::span(values), ReduceOp::sum);
    most = std::max(most, switches() - before);
    BOOST_TEST(values.front() == static_cast<float>(shared.mpi->size()));
  }
  if (shared.mpi->rank() != 0) BOOST_TEST(most > 10);
}

BOOST_AUTO_TEST_CASE(a_failed_allocation_is_reported_on_all_ranks) {
  if (is_alone()) return;
  const auto mpi = make_mpi_communicator();
  const SharedMemoryResult result =
      make_shared_memory_communicator(*mpi, {.bytes = std::size_t{1} << 50});
  BOOST_TEST(!result.communicator);
  BOOST_TEST(result.reason.find("bytes of shared memory failed") != std::string::npos,
             result.reason);
}

BOOST_AUTO_TEST_CASE(no_rank_uses_shared_memory_that_one_cannot_open) {
  if (is_alone()) return;
  const auto mpi = make_mpi_communicator();
  const test::WithoutFiles on_last_rank(mpi->rank() == mpi->size() - 1);
  const SharedMemoryResult result = make_shared_memory_communicator(*mpi);
  BOOST_TEST(!result.communicator);
  BOOST_TEST(result.reason.find("Too many open files") != std::string::npos, result.reason);
}

BOOST_AUTO_TEST_CASE(a_split_fails_on_all_ranks_if_a_part_has_no_memory) {
  if (is_alone()) return;
  const Shared shared;
  Communicator& comm = *shared.comm;
  const test::WithoutFiles on_last_rank(comm.rank() == comm.size() - 1);
  const int color = comm.size() < 4 ? 0 : comm.rank() / 2;
  std::string text;
  try {
    static_cast<void>(comm.split(color, 0));
  } catch (const Error& error) {
    text = error.what();
  }
  BOOST_TEST(text.find("Too many open files") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(no_file_remains_in_dev_shm) {
  if (is_alone()) return;
  const auto left = [] {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      files += entry.path().filename().string().starts_with("lockstep-" +
                                                            std::to_string(::getpid()) + "-");
    }
    return files;
  };
  const Shared shared;
  BOOST_TEST(left() == 0);
}
