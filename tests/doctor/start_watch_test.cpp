#include "lockstep/doctor/start_watch.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <functional>

using namespace lockstep::doctor;
using namespace std::chrono_literals;

namespace {

struct Seen {
  int outcome = -1;
  std::string report = {};
};

/// The outcome and report of a watched process that runs `life` and exits with 0 when it returns.
Seen watch(const std::function<void(StartWatch&)>& life,
           std::chrono::duration<double> limit = 60s) {
  Seen seen;
  StartWatch watch(limit, [&](const std::string& what) { seen.report = what; });
  if (!watch.outcome()) {
    life(watch);
    ::_exit(0);
  }
  seen.outcome = *watch.outcome();
  return seen;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_crash_during_the_start_is_reported_with_its_signal) {
  const Seen seen = watch([](StartWatch&) { ::raise(SIGKILL); });

  BOOST_TEST(seen.outcome == 1);
  BOOST_TEST(seen.report == "the MPI library crashed with signal 9");
}

BOOST_AUTO_TEST_CASE(an_exit_during_the_start_is_reported_with_its_status) {
  for (const int status : {0, 3, 137, 255}) {
    const Seen seen = watch([&](StartWatch&) { ::_exit(status); });

    BOOST_TEST(seen.outcome == 1);
    BOOST_TEST(seen.report.find("ended the process with status " + std::to_string(status) + ";") !=
               std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_hanging_start_is_reported) {
  const Seen seen = watch(
      [](StartWatch&) {
        for (;;) ::pause();
      },
      200ms);

  BOOST_TEST(seen.outcome == 1);
  BOOST_TEST(seen.report == "nothing within the 0.2 s of --timeout");
}

BOOST_AUTO_TEST_CASE(after_the_start_the_status_of_the_process_is_returned) {
  const Seen ended = watch([](StartWatch& watch) {
    watch.started();
    ::_exit(7);
  });
  BOOST_TEST(ended.outcome == 7);
  BOOST_TEST(ended.report == "");

  const Seen killed = watch([](StartWatch& watch) {
    watch.started();
    ::raise(SIGKILL);
  });
  BOOST_TEST(killed.outcome == 137);
  BOOST_TEST(killed.report == "");
}
