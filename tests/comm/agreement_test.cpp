#include <boost/test/unit_test.hpp>

#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/first_text.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"

#include <functional>
#include <new>
#include <optional>
#include <string>

using namespace lockstep;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

/// The error that `collectively` throws on this rank, if any.
std::optional<Error> outcome(Communicator& comm, const std::function<void()>& work) {
  try {
    collectively(comm, work);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// What stands before the error of a rank. Rank 0 prints it, so its own has nothing.
std::string place_of(int rank, Communicator& comm) {
  const std::string host = broadcast_text(comm, host_name(), rank);
  return rank == 0 ? "" : "rank " + std::to_string(rank) + " on " + host + ": ";
}

/// Whether the communicator still works: no rank has an unmatched collective.
bool is_in_step(Communicator& comm) {
  return comm.all_reduce_value<std::int64_t>(comm.rank() + 1) ==
         std::int64_t{comm.size()} * (comm.size() + 1) / 2;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_text_reaches_every_rank_from_any_root) {
  const auto comm = make_mpi_communicator();
  for (int root = 0; root < comm->size(); ++root) {
    for (const std::string& text : {std::string(), std::string("lr=0.1\n"), std::string("a\0b", 3),
                                    std::string(100003, 'x')}) {
      const std::string mine = comm->rank() == root ? text : "not this";

      BOOST_TEST((broadcast_text(*comm, mine, root) == text));
    }
  }
}

BOOST_AUTO_TEST_CASE(texts_of_any_length_are_gathered_in_rank_order) {
  const auto comm = make_mpi_communicator();
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank) * 7, 'r');
  };

  const auto all = all_gather_text(*comm, text_of(comm->rank()));
  const auto none = all_gather_text(*comm, "");

  BOOST_TEST_REQUIRE(all.size() == static_cast<std::size_t>(comm->size()));
  for (int rank = 0; rank < comm->size(); ++rank) {
    BOOST_TEST(all[static_cast<std::size_t>(rank)] == text_of(rank));
  }
  BOOST_TEST((none == std::vector<std::string>(static_cast<std::size_t>(comm->size()))));
}

BOOST_AUTO_TEST_CASE(the_first_text_is_that_of_the_lowest_rank_with_one) {
  const auto comm = make_mpi_communicator();
  const auto text_of = [](int rank) { return "reason " + std::string(1 + 100 * rank, 'r'); };

  BOOST_TEST(first_text(*comm, "").empty());
  for (int lowest = 0; lowest < comm->size(); ++lowest) {
    const std::string mine = comm->rank() < lowest ? "" : text_of(comm->rank());

    BOOST_TEST(first_text(*comm, mine) == text_of(lowest));
  }
}

BOOST_AUTO_TEST_CASE(work_that_succeeds_everywhere_throws_nowhere) {
  const auto comm = make_mpi_communicator();
  bool ran = false;

  const auto error = outcome(*comm, [&] { ran = true; });

  BOOST_TEST(ran);
  BOOST_TEST(!error.has_value());
  BOOST_TEST(is_in_step(*comm));
}

BOOST_AUTO_TEST_CASE(one_failing_rank_fails_all_with_its_status_place_and_text) {
  const auto comm = make_mpi_communicator();
  const std::string text = "shard 3 is truncated " + std::string(5000, '.');
  for (int failing = 0; failing < comm->size(); ++failing) {
    const auto error = outcome(*comm, [&] {
      if (comm->rank() == failing) throw Error(ExitStatus::bad_input, text);
    });

    BOOST_TEST_REQUIRE(error.has_value());
    BOOST_TEST((error->status() == ExitStatus::bad_input));
    BOOST_TEST(error->what() == place_of(failing, *comm) + text);
    BOOST_TEST(is_in_step(*comm));
  }
}

BOOST_AUTO_TEST_CASE(of_several_failures_the_lowest_ranks_is_thrown) {
  const auto comm = make_mpi_communicator();
  for (int first = 0; first < comm->size(); ++first) {
    const auto error = outcome(*comm, [&] {
      if (comm->rank() < first) return;
      const auto status = comm->rank() == first ? ExitStatus::no_input : ExitStatus::usage;
      fail(status, "failure of rank {}", comm->rank());
    });

    BOOST_TEST_REQUIRE(error.has_value());
    BOOST_TEST((error->status() == ExitStatus::no_input));
    BOOST_TEST(error->what() ==
               place_of(first, *comm) + "failure of rank " + std::to_string(first));
    BOOST_TEST(is_in_step(*comm));
  }
}

BOOST_AUTO_TEST_CASE(other_exceptions_are_internal_errors) {
  const auto mpi = make_mpi_communicator();
  const auto self = make_self_communicator();
  for (Communicator* comm : {mpi.get(), self.get()}) {
    const auto last = [&] { return comm->rank() == comm->size() - 1; };

    const auto logic = outcome(*comm, [&] {
      if (last()) throw std::runtime_error("the library says no");
    });
    const auto memory = outcome(*comm, [&] {
      if (last()) throw std::bad_alloc();
    });
    const auto unknown = outcome(*comm, [&] {
      if (last()) throw 3;
    });

    BOOST_TEST_REQUIRE((logic && memory && unknown));
    BOOST_TEST((logic->status() == ExitStatus::internal));
    const std::string place = place_of(comm->size() - 1, *comm);
    BOOST_TEST(logic->what() == place + "the library says no");
    BOOST_TEST((memory->status() == ExitStatus::internal));
    BOOST_TEST(std::string(memory->what()).find(place + "out of memory") == 0U);
    BOOST_TEST((unknown->status() == ExitStatus::internal));
    BOOST_TEST(is_in_step(*comm));
  }
}
