#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/clock_offset.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/root_channel.hpp"
#include "lockstep/runtime/traced_communicator.hpp"

#include <mpi.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

Communicator* world = nullptr;
bool copies_fail = false;

}  // namespace

/// Calls MPI, unless the test makes copies fail.
extern "C" int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  return copies_fail ? MPI_ERR_OTHER : PMPI_Comm_dup(comm, copy);
}

BOOST_AUTO_TEST_CASE(clocks_of_hosts_with_different_origins_are_aligned) {
  // Ranks of one host share a clock; `planted` shifts it on each rank.
  RootChannel channel;
  const std::int64_t planted = std::int64_t{3'600'000'000'000} * world->rank();
  const auto clock = [planted] { return TraceRecorder::now() - planted; };

  const ClockOffset found = measure_clock_offset(channel, clock);

  BOOST_TEST(std::abs(found.offset - planted) <= found.uncertainty);
  // On a busy machine echoes take long, but not all of them.
  BOOST_TEST(found.uncertainty < 50'000'000);
  BOOST_TEST(std::abs(to_root_clock(clock(), found, found) - TraceRecorder::now()) < 5'000'000'000);
}

BOOST_AUTO_TEST_CASE(messages_go_to_rank_0_and_back) {
  RootChannel channel;
  BOOST_TEST(channel.size() == world->size());
  BOOST_TEST(channel.rank() == world->rank());
  for (int rank = 1; rank < channel.size(); ++rank) {
    std::array<int, 2> values{channel.rank(), 0};
    const auto bytes = std::as_writable_bytes(std::span(values));
    if (channel.rank() == rank) {
      channel.send(0, bytes);
      channel.receive(0, bytes);
      BOOST_TEST(values[1] == 7 * rank);
    } else if (channel.rank() == 0) {
      channel.receive(rank, bytes);
      BOOST_TEST(values[0] == rank);
      values[1] = 7 * rank;
      channel.send(rank, bytes);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_error_of_a_failed_channel_names_its_rank) {
  const auto says_it = [](const Error& error) {
    const std::string own = "rank " + std::to_string(world->rank());
    return error.status() == ExitStatus::internal &&
           std::string(error.what()).starts_with(own + " gets no communicator");
  };
  copies_fail = true;
  BOOST_CHECK_EXCEPTION(RootChannel(), Error, says_it);
  copies_fail = false;
}

BOOST_AUTO_TEST_CASE(a_collectives_event_lasts_from_its_start_to_the_end_of_its_wait) {
  TraceRecorder recorder(64);
  TracedCommunicator comm(*world, recorder);
  recorder.start();
  recorder.begin_step(9);
  std::vector<float> one(100, 1);
  std::vector<float> two(200, 1);
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<double> all(30 * ranks, 1);
  std::vector<double> mine(30);

  Request first = comm.start_all_reduce(std::span(one));
  Request second = comm.start_all_reduce(std::span(two));
  Request third = comm.start_reduce_scatter(std::span<const double>(all), std::span(mine));
  comm.wait(second);
  comm.wait(first);
  comm.wait(third);
  comm.wait(third);  // already complete: records nothing
  comm.barrier();
  recorder.stop();

  const auto under_way = recorder.row(TracedCommunicator::under_way_row).content().events;
  const auto waiting = recorder.row(TracedCommunicator::waiting_row).content().events;
  BOOST_TEST(one[0] == static_cast<float>(comm.size()));
  BOOST_TEST_REQUIRE(under_way.size() == 3U);
  const std::int64_t bytes[] = {400, 800, 240 * comm.size()};
  for (std::size_t i = 0; i < 3; ++i) {
    BOOST_TEST(under_way[i].name == std::string(i < 2 ? "all-reduce" : "reduce-scatter"));
    BOOST_TEST(under_way[i].finished);
    BOOST_TEST(under_way[i].arguments[0].value == 9);
    BOOST_TEST(under_way[i].arguments[1].value == bytes[i]);
    BOOST_TEST(under_way[i].arguments[2].value == comm.size());
  }
  BOOST_TEST(waiting.back().name == std::string("barrier"));
  BOOST_TEST(waiting.size() == 4U);
  BOOST_TEST(under_way[0].end > under_way[1].begin);
  BOOST_TEST(under_way[0].end >= under_way[1].end);
}

BOOST_AUTO_TEST_CASE(a_collective_that_completes_at_once_is_an_event_too) {
  TraceRecorder recorder(64);
  const auto alone = make_self_communicator();
  TracedCommunicator comm(*alone, recorder);
  recorder.start();
  std::vector<float> values(10, 1);

  Request request = comm.start_all_reduce(std::span(values));
  comm.wait(request);
  recorder.stop();

  const auto under_way = recorder.row(TracedCommunicator::under_way_row).content().events;
  BOOST_TEST_REQUIRE(under_way.size() == 1U);
  BOOST_TEST(under_way[0].finished);
  BOOST_TEST(under_way[0].arguments[1].value == 40);
  BOOST_TEST(recorder.row(TracedCommunicator::waiting_row).content().events.empty());
}

int main(int argc, char** argv) {
  const MpiEnvironment environment(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
