#include "lockstep/runtime/run_command.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(output_errors_and_status_are_returned) {
  const CommandResult result = run_command({"sh", "-c", "echo out; echo err >&2; exit 3"});

  BOOST_TEST(result.output == "out\nerr\n");
  BOOST_TEST(result.status.value_or(-1) == 3);
}

BOOST_AUTO_TEST_CASE(words_are_not_read_by_a_shell) {
  BOOST_TEST(run_command({"echo", "$(id)", "a b"}).output == "$(id) a b\n");
}

BOOST_AUTO_TEST_CASE(variables_are_left_out_by_the_beginning_of_their_name) {
  ::setenv("LOCKSTEP_TEST_ONE", "1", 1);
  ::setenv("LOCKSTEP_TEST_TWO", "2", 1);

  const CommandResult result =
      run_command({"sh", "-c", "echo $LOCKSTEP_TEST_ONE $LOCKSTEP_TEST_TWO"},
                  {.without = {"LOCKSTEP_TEST_ONE="}});

  BOOST_TEST(result.output == "2\n");
}

BOOST_AUTO_TEST_CASE(a_command_that_does_not_exist_says_so) {
  const CommandResult result = run_command({"no-such-command"});

  BOOST_TEST(result.output == "no-such-command: No such file or directory");
  BOOST_TEST(!result.status);
}

BOOST_AUTO_TEST_CASE(long_output_is_cut_and_does_not_block) {
  const CommandResult result = run_command({"sh", "-c", "head -c 1000000 /dev/zero"});

  BOOST_TEST(result.output.size() == std::size_t{64} << 10);
  BOOST_TEST(result.status.value_or(-1) == 0);
}

BOOST_AUTO_TEST_CASE(a_command_that_hangs_is_killed_with_what_it_started) {
  const auto begin = std::chrono::steady_clock::now();
  const CommandResult result = run_command({"sh", "-c", "sleep 1000; true"}, {.limit = 100ms});

  BOOST_TEST(result.output == "sh: no answer within 0 s");
  BOOST_TEST(!result.status);
  BOOST_TEST((std::chrono::steady_clock::now() - begin < 100s));
}

BOOST_AUTO_TEST_CASE(a_stop_request_ends_it) {
  std::stop_source source;
  const std::jthread stopper([&] {
    std::this_thread::sleep_for(50ms);
    source.request_stop();
  });

  BOOST_TEST(!run_command({"sleep", "1000"}, {}, source.get_token()).status);
}

BOOST_AUTO_TEST_CASE(the_command_gets_default_signals) {
  sigset_t all;
  sigfillset(&all);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::signal(SIGPIPE, SIG_IGN);

  const CommandResult result = run_command(
      {"sh", "-c",
       "grep SigBlk /proc/self/status | cut -f 2; yes | head -n 1; kill -TERM $$; sleep 1000"});

  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  BOOST_TEST(result.output == "0000000000000000\ny\n");
  BOOST_TEST(!result.status);
}
