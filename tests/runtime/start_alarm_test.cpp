#include "lockstep/runtime/start_alarm.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <thread>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(a_start_in_time_is_silent_and_waits_for_nothing) {
  std::atomic<int> calls = 0;

  {
    const StartAlarm alarm({.tell = [&] { ++calls; }, .end = [&] { ++calls; }});
  }

  BOOST_TEST(calls == 0);
}

BOOST_AUTO_TEST_CASE(a_late_start_is_told_once_and_ended_later) {
  std::atomic<int> told = 0;
  std::atomic<int> ended = 0;
  const StartAlarm alarm(
      {.notice = 1ms, .limit = 2ms, .tell = [&] { ++told; }, .end = [&] { ++ended; }});

  while (ended == 0) std::this_thread::sleep_for(1ms);

  BOOST_TEST(told == 1);
  BOOST_TEST(ended == 1);
}
