#include <boost/test/unit_test.hpp>

#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/mailbox.hpp"

#include <chrono>
#include <thread>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

BOOST_AUTO_TEST_CASE(an_echo_ends_when_the_lower_rank_has_had_enough) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Mailbox mailbox(MPI_COMM_WORLD);
  // The ranks begin apart, so that they would disagree if each measured for itself.
  if (mailbox.rank() == 1) std::this_thread::sleep_for(100ms);
  const auto deadline = Mailbox::Clock::now() + 60s;
  const Mailbox::Echo many =
      mailbox.echo(1 - mailbox.rank(),
                   {.tag = 1, .repetitions = 1'000'000'000, .enough = 50ms, .deadline = deadline});
  BOOST_TEST(many.error == "");
  BOOST_TEST(many.seconds < 60);
  const Mailbox::Echo few =
      mailbox.echo(1 - mailbox.rank(), {.tag = 1, .repetitions = 3, .deadline = deadline});
  BOOST_TEST(few.error == "");
  BOOST_TEST(mailbox.settled(deadline));
}
