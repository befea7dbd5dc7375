#include <boost/test/unit_test.hpp>

#include "lockstep/health/stop_timer.hpp"

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(a_run_without_an_end_never_stops_by_itself) {
  StopTimer timer(std::nullopt, 1e6);
  timer.step_took(1e6);

  BOOST_TEST(!timer.is_due(StopTimer::Clock::now(), {.saving = true}));
}

BOOST_AUTO_TEST_CASE(the_steps_until_the_run_may_stop_again_must_fit_before_the_end) {
  const auto now = StopTimer::Clock::now();
  StopTimer timer(now + 200s, 20);
  timer.step_took(10);

  BOOST_TEST(timer.needed({.steps = 8}) - timer.needed({}) == 7 * 10);
  BOOST_TEST(!timer.is_due(now, {.steps = 15}));
  BOOST_TEST(timer.is_due(now, {.steps = 16}));
}

BOOST_AUTO_TEST_CASE(two_steps_and_a_save_must_fit_before_the_end) {
  const auto now = StopTimer::Clock::now();
  StopTimer timer(now + 1000s, 100);
  timer.step_took(10);
  const auto needed = std::chrono::duration_cast<StopTimer::Clock::duration>(
      std::chrono::duration<double>(timer.needed({})));

  BOOST_TEST(timer.needed({}) >= 2 * 10 + 100);
  BOOST_TEST(timer.needed({}) <= 2 * 10 + 2 * 100);
  BOOST_TEST(timer.needed({.saving = true}) >= timer.needed({}) + 100);
  BOOST_TEST(!timer.is_due(now, {.saving = true}));
  BOOST_TEST(!timer.is_due(now + 1000s - needed - 1s, {}));
  BOOST_TEST(timer.is_due(now + 1000s - needed, {}));
}

BOOST_AUTO_TEST_CASE(measured_saves_replace_the_assumed_one_and_the_longest_counts) {
  StopTimer timer(StopTimer::Clock::now(), 100);
  const double assumed = timer.needed({});

  timer.save_took(10);
  const double quick = timer.needed({});
  timer.save_took(20);
  const double slow = timer.needed({});
  timer.save_took(5);

  BOOST_TEST(quick < assumed);
  BOOST_TEST(slow > quick);
  BOOST_TEST(timer.needed({}) == slow);
}

BOOST_AUTO_TEST_CASE(a_long_step_is_forgotten_slowly) {
  StopTimer timer(StopTimer::Clock::now(), 0);
  timer.step_took(100);
  const double at_once = timer.needed({});
  timer.step_took(1);
  BOOST_TEST(timer.needed({}) > 0.97 * at_once);

  for (int i = 0; i < 1000; ++i) timer.step_took(1);

  BOOST_TEST(timer.needed({}) < 0.1 * at_once);
}

BOOST_AUTO_TEST_CASE(a_later_end_postpones_the_stop) {
  const auto now = StopTimer::Clock::now();
  StopTimer timer(now, 0);
  BOOST_TEST(timer.is_due(now, {}));

  timer.set_end(now + 1h);
  BOOST_TEST(!timer.is_due(now, {}));

  timer.set_end(std::nullopt);
  BOOST_TEST(!timer.is_due(now + 10h, {}));
}
