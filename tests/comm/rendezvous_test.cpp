#include "lockstep/comm/rendezvous.hpp"
#include "comm/mpi_fixture.hpp"
#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

std::optional<Error> outcome(Rendezvous& rendezvous, const Rendezvous::Place& place,
                             const Rendezvous::Outcome& mine = {}) {
  try {
    rendezvous.meet(place, mine);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_payload_of_rank_0_reaches_all_ranks) {
  Rendezvous rendezvous;
  for (int meeting = 0; meeting < 20; ++meeting) {
    std::array<std::byte, Rendezvous::largest_payload> payload{};
    if (rendezvous.rank() == 0) payload.fill(std::byte(meeting + 1));

    rendezvous.meet({"a test", 20s}, {}, payload);

    BOOST_TEST((payload.front() == std::byte(meeting + 1)));
    BOOST_TEST((payload.back() == std::byte(meeting + 1)));
  }
}

BOOST_AUTO_TEST_CASE(each_block_of_the_payload_comes_from_its_leader) {
  Rendezvous rendezvous;
  const int rank = rendezvous.rank();
  // The leaders of all ranks, of pairs, and of the ranks at the same position in each pair.
  const std::array leaders{0, rank - rank % 2, rank % 2};
  std::array<std::array<std::byte, 150>, 3> blocks{};
  for (std::size_t k = 0; k < 3; ++k) blocks[k].fill(std::byte(10 * k + std::size_t(rank)));

  rendezvous.meet({"a test", 20s}, {}, std::as_writable_bytes(std::span(blocks)), leaders);

  for (std::size_t k = 0; k < 3; ++k) {
    const auto expected = std::byte(10 * k + std::size_t(leaders[k]));
    BOOST_TEST((blocks[k].front() == expected));
    BOOST_TEST((blocks[k].back() == expected));
  }
}

BOOST_AUTO_TEST_CASE(of_several_waits_or_failures_the_earliest_phase_is_reported) {
  for (const auto arrival : {Rendezvous::Arrival::waited, Rendezvous::Arrival::failed}) {
    Rendezvous rendezvous;
    const int last = rendezvous.size() - 1;

    const auto error = outcome(rendezvous, {"a test", 20s},
                               {.arrival = arrival,
                                .text = rendezvous.name(rendezvous.rank()),
                                .phase = rendezvous.rank() == last ? 1 : 2});

    BOOST_TEST_REQUIRE(error.has_value());
    BOOST_TEST(error->what() == rendezvous.name(last));
  }
}

BOOST_AUTO_TEST_CASE(a_late_rank_is_waited_for) {
  Rendezvous rendezvous;
  for (int late = 0; late < rendezvous.size(); ++late) {
    if (rendezvous.rank() == late) std::this_thread::sleep_for(300ms);

    BOOST_TEST(!outcome(rendezvous, {"a test", 20s}).has_value());
  }
}

BOOST_AUTO_TEST_CASE(a_missing_rank_is_named_with_its_host_by_all_others) {
  for (int missing = 0;; ++missing) {
    Rendezvous rendezvous;
    if (missing == rendezvous.size()) break;
    if (rendezvous.rank() == missing) continue;
    const auto begin = std::chrono::steady_clock::now();

    const auto error = outcome(rendezvous, {"the meeting", 2s});

    BOOST_TEST_REQUIRE(error.has_value());
    BOOST_TEST((error->status() == ExitStatus::internal));
    BOOST_TEST(std::string(error->what())
                   .find(rendezvous.name(missing) + " did not come to the meeting within 2 s") ==
               0U);
    BOOST_TEST((std::chrono::steady_clock::now() - begin < 10s));
  }
}

BOOST_AUTO_TEST_CASE(a_failure_is_reported_rather_than_a_wait_for_it) {
  Rendezvous rendezvous;
  const int failing = rendezvous.size() - 1;
  const bool here = rendezvous.rank() == failing;

  const auto error =
      outcome(rendezvous, {"a test", 20s},
              {.arrival = here ? Rendezvous::Arrival::failed : Rendezvous::Arrival::waited,
               .text = (here ? "failed on " : "waited on ") + rendezvous.name(rendezvous.rank())});

  BOOST_TEST_REQUIRE(error.has_value());
  BOOST_TEST(error->what() == "failed on " + rendezvous.name(failing));
}

BOOST_AUTO_TEST_CASE(of_several_failures_the_lowest_ranks_is_reported_and_truncated) {
  Rendezvous rendezvous;
  const std::string text =
      "rank " + std::to_string(rendezvous.rank()) + ": " + std::string(5000, '.');

  const auto error =
      outcome(rendezvous, {"a test", 20s}, {.arrival = Rendezvous::Arrival::failed, .text = text});

  BOOST_TEST_REQUIRE(error.has_value());
  BOOST_TEST(std::string(error->what()).find("rank 0: ...") == 0U);
  BOOST_TEST(std::strlen(error->what()) >= 500);
}
