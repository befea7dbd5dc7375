#include <boost/test/unit_test.hpp>

#include "lockstep/runtime/signals.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>

using namespace lockstep;

namespace {

/// The wait status of a child that does `work` and then exits with 7.
int status_of_child(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

bool continued(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_handled_signal_only_sets_the_flag) {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    const int status = status_of_child([signal] {
      const SignalFlag flag;
      if (SignalFlag::received() != 0) _exit(1);
      raise(signal);
      if (SignalFlag::received() != signal) _exit(2);
    });

    BOOST_TEST(continued(status));
  }
}

BOOST_AUTO_TEST_CASE(a_second_interrupt_ends_the_program) {
  const int status = status_of_child([] {
    const SignalFlag flag;
    for (int i = 0; i < 2; ++i) raise(SIGINT);
  });

  BOOST_TEST(WIFSIGNALED(status));
  BOOST_TEST(WTERMSIG(status) == SIGINT);
}

BOOST_AUTO_TEST_CASE(repeated_warnings_of_the_batch_system_change_nothing) {
  const int status = status_of_child([] {
    const SignalFlag flag;
    for (int i = 0; i < 5; ++i) raise(SIGUSR1);
    for (int i = 0; i < 5; ++i) raise(SIGTERM);
    if (SignalFlag::received() != SIGTERM) _exit(1);
  });

  BOOST_TEST(continued(status));
}

BOOST_AUTO_TEST_CASE(handlers_remain_after_the_flag_is_destroyed) {
  const int status = status_of_child([] {
    { const SignalFlag flag; }
    raise(SIGTERM);
  });

  BOOST_TEST(continued(status));
}

BOOST_AUTO_TEST_CASE(writing_to_a_dead_rank_is_an_error_and_kills_nobody) {
  const int status = status_of_child([] {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) _exit(1);
    close(ends[0]);
    const SignalFlag flag;
    if (write(ends[1], "x", 1) != -1 || errno != EPIPE) _exit(2);
    if (SignalFlag::received() != 0) _exit(3);
  });

  BOOST_TEST(continued(status));
}

BOOST_AUTO_TEST_CASE(an_interrupted_read_continues) {
  int ends[2] = {-1, -1};
  BOOST_TEST_REQUIRE(pipe(ends) == 0);
  const int status = status_of_child([&] {
    const SignalFlag flag;
    const pid_t reader = getpid();
    if (fork() == 0) {
      usleep(100000);
      kill(reader, SIGUSR1);
      usleep(100000);
      _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
    }
    char letter = 0;
    if (read(ends[0], &letter, 1) != 1 || letter != 'x') _exit(1);
    if (SignalFlag::received() != SIGUSR1) _exit(2);
  });
  close(ends[0]);
  close(ends[1]);

  BOOST_TEST(continued(status));
}
