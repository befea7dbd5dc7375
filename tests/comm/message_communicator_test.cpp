#include <boost/test/unit_test.hpp>

#include "comm/allocation_count.hpp"
#include "comm/communicator_suite.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/without_files.hpp"
#include "lockstep/comm/message_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

/// Small pieces, parts and windows, so that short messages need many; few receive buffers, so that
/// messages wait for memory.
MessageCommunicatorOptions small(BlockSchedule schedule) {
  MessageCommunicatorOptions options;
  options.schedule = schedule;
  options.piece_bytes = 1024;
  options.receive_buffer_bytes = std::size_t{3} * 1024;
  options.part_bytes = 40000;
  options.window_bytes = 16384;
  return options;
}

struct Messages {
  std::unique_ptr<Communicator> mpi = make_mpi_communicator();
  MessageCommunicatorResult made;
  Communicator& comm;
  explicit Messages(const MessageCommunicatorOptions& options)
      : made(make_message_communicator(*mpi, options)), comm(*made.communicator) {}
};

int ranks_of_job() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int ranks_on_host() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int size = 0;
  MPI_Comm_size(host, &size);
  MPI_Comm_free(&host);
  return size;
}

/// Calls `visit` with a communicator for each schedule, progressed by a thread and by calls, on one
/// level and on two: between the hosts if there are several, else as if each two ranks were a node,
/// if their number is even.
template <typename Visit>
void for_each_kind(Visit&& visit) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const int kind : {0, 1, 2, 3}) {
    MessageCommunicatorOptions options =
        small(kind % 2 == 0 ? BlockSchedule::halving : BlockSchedule::ring);
    if (kind / 2 == 1) options.prepare_thread = [] {};
    visit(Messages(options));
    if (const int on_host = ranks_on_host(); on_host < ranks_of_job()) {
      if (on_host == 1) continue;
    } else {
      if (ranks_of_job() % 2 != 0 || ranks_of_job() < 4) continue;
      options.node = rank / 2;
    }
    const Messages two_levels(options);
    BOOST_TEST_REQUIRE(two_levels.made.algorithm.starts_with("shared memory, "));
    visit(two_levels);
  }
}

std::vector<float> random_values(std::size_t count, int rank) {
  PhiloxStream random(5, RandomPurpose::synthetic_data, 0, static_cast<std::uint32_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(messages_are_short_enough_to_be_sent_at_once) {
  constexpr std::size_t eager_limit = 65536;  // Open MPI's for TCP
  constexpr std::size_t header = 1024;        // more than any has
  BOOST_TEST(MessageCommunicatorOptions{}.piece_bytes + header <= eager_limit);
}

BOOST_AUTO_TEST_CASE(all_kinds_pass_the_suite) {
  for_each_kind([](const Messages& messages) {
    test::check_communicator(messages.comm, {0, 1, 2, 3, 17, 1000, 20003});
  });
  const Messages default_sizes(MessageCommunicatorOptions{});
  test::check_communicator(default_sizes.comm, {0, 1, 5000, 300007});
}

BOOST_AUTO_TEST_CASE(sums_are_close_to_exact_and_have_the_same_bits_each_time_on_all_ranks) {
  for_each_kind([](const Messages& messages) {
    Communicator& comm = messages.comm;
    constexpr std::size_t count = 20011;
    std::vector<double> exact(count);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const std::vector<float> theirs = random_values(count, rank);
      for (std::size_t i = 0; i < count; ++i) exact[i] += static_cast<double>(theirs[i]);
    }
    std::vector<float> first = random_values(count, comm.rank());
    std::vector<float> second = first;
    comm.all_reduce(std::span(first));
    comm.all_reduce(std::span(second));
    BOOST_TEST((first == second));
    double error = 0;
    for (std::size_t i = 0; i < count; ++i) {
      error = std::max(error, std::abs(static_cast<double>(first[i]) - exact[i]));
    }
    BOOST_TEST(error < 1e-5);
    std::vector<float> of_root = first;
    comm.broadcast(std::span(of_root));
    BOOST_TEST((first == of_root));
  });
}

BOOST_AUTO_TEST_CASE(sharded_sums_have_the_bits_of_an_all_reduce) {
  for_each_kind([](const Messages& messages) {
    Communicator& comm = messages.comm;
    const std::size_t block = 5003;
    const std::size_t count = block * static_cast<std::size_t>(comm.size());
    const std::vector<float> mine = random_values(count, comm.rank());
    std::vector<float> part(block);
    std::vector<float> gathered(count);
    comm.reduce_scatter(std::span<const float>(mine), std::span(part));
    comm.all_gather(std::span<const float>(part), std::span(gathered));
    std::vector<float> reduced = mine;
    comm.all_reduce(std::span(reduced));
    const bool is_one_level = messages.made.algorithm.find("shared") == std::string::npos;
    if (is_one_level) BOOST_TEST((gathered == reduced));
    float largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      largest = std::max(largest, std::abs(gathered[i] - reduced[i]));
    }
    BOOST_TEST(largest < 1e-5F);
  });
}

BOOST_AUTO_TEST_CASE(not_a_number_and_infinity_reach_every_rank) {
  for_each_kind([](const Messages& messages) {
    Communicator& comm = messages.comm;
    const bool last = comm.rank() == comm.size() - 1;
    std::vector<float> values(9000, 1.0F);
    values[3] = last ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
    values[8997] = last ? std::numeric_limits<float>::infinity() : 1.0F;
    comm.all_reduce(std::span(values));
    BOOST_TEST(std::isnan(values[3]));
    BOOST_TEST(std::isinf(values[8997]));
    BOOST_TEST(values[8998] == static_cast<float>(comm.size()));
  });
}

BOOST_AUTO_TEST_CASE(many_requests_in_flight_complete_in_any_order) {
  for_each_kind([](const Messages& messages) { test::check_many_requests(messages.comm); });
}

BOOST_AUTO_TEST_CASE(a_slow_rank_gets_the_values_of_each_operation) {
  for_each_kind([](const Messages& messages) {
    Communicator& comm = messages.comm;
    constexpr std::size_t count = 30000;
    std::vector<float> expected = random_values(count, comm.rank());
    comm.all_reduce(std::span(expected));
    for (int slow = 0; slow < comm.size(); ++slow) {
      std::vector<std::vector<float>> buffers(3, random_values(count, comm.rank()));
      std::vector<Request> requests;
      for (auto& buffer : buffers) {
        requests.push_back(comm.start_all_reduce(std::span(buffer)));
        if (comm.rank() == slow) std::this_thread::sleep_for(5ms);
      }
      for (Request& request : requests) {
        while (!comm.test(request)) {
          if (comm.rank() == slow) std::this_thread::sleep_for(20us);
        }
      }
      for (const auto& buffer : buffers) BOOST_TEST((buffer == expected));
    }
  });
}

BOOST_AUTO_TEST_CASE(requests_of_several_communicators_complete_in_any_order) {
  const Messages one(small(BlockSchedule::halving));
  const Messages other(small(BlockSchedule::ring));
  test::check_requests_of_several(one.comm, other.comm, *one.mpi);
}

BOOST_AUTO_TEST_CASE(steps_after_the_first_allocate_nearly_nothing) {
  for_each_kind([](const Messages& messages) {
    Communicator& comm = messages.comm;
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
    // Memory for several operations at once is allocated when they first are in flight at once.
    BOOST_TEST(test::allocation_count() - before <= 6);
  });
}

BOOST_AUTO_TEST_CASE(groups_of_ranks_have_communicators_of_their_own) {
  if (ranks_of_job() % 2 != 0) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto mpi = make_mpi_communicator()->split(rank % 2, 0);
  const auto made = make_message_communicator(*mpi);
  std::vector<float> values(10000, static_cast<float>(rank));
  made.communicator->all_reduce(std::span(values));
  float expected = 0;
  for (int each = rank % 2; each < ranks_of_job(); each += 2) expected += static_cast<float>(each);
  BOOST_TEST((values == std::vector(10000, expected)));
}

BOOST_AUTO_TEST_CASE(a_split_fails_on_all_ranks_if_a_node_has_no_memory) {
  if (ranks_of_job() != 4) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MessageCommunicatorOptions options = small(BlockSchedule::ring);
  options.node = rank / 2;
  const Messages two_levels(options);
  const test::WithoutFiles on_last_rank(rank == 3);
  const Messages one_level(options);
  BOOST_TEST(one_level.made.one_level_reason.find("Too many open files") != std::string::npos);

  std::string text;
  try {
    static_cast<void>(two_levels.comm.split(0, 0));
  } catch (const Error& error) {
    text = error.what();
  }
  BOOST_TEST(text.find("Too many open files") != std::string::npos, text);
  // One that has one level makes such parts.
  BOOST_TEST(one_level.comm.split(0, 0)->size() == 4);
}

BOOST_AUTO_TEST_CASE(a_part_may_have_one_level_where_the_whole_has) {
  if (ranks_of_job() != 6) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MessageCommunicatorOptions options = small(BlockSchedule::ring);
  options.node = rank < 4 ? rank / 2 : rank;  // 2, 2, 1 and 1 ranks
  const Messages uneven(options);
  BOOST_TEST(!uneven.made.one_level_reason.empty());
  const test::WithoutFiles on_one_rank(rank == 3);
  BOOST_TEST(uneven.comm.split(rank / 4, 0)->size() == (rank < 4 ? 4 : 2));
}

BOOST_AUTO_TEST_CASE(one_level_has_a_reason) {
  if (ranks_of_job() < 3) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto reason = [](int node) {
    MessageCommunicatorOptions options;
    options.node = node;
    return Messages(options).made.one_level_reason;
  };
  BOOST_TEST(reason(rank) == "");
  BOOST_TEST(reason(rank == 0) == "nodes have different numbers of ranks");
  if (ranks_of_job() == 4) BOOST_TEST(reason(rank % 2) == "ranks of a node are not consecutive");
}
