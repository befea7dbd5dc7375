#include <boost/test/unit_test.hpp>

#include "lockstep/checkpointing/save_schedule.hpp"

#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(delays_double_up_to_ten_minutes) {
  std::vector<std::int64_t> seconds;
  for (int failures = 1; failures <= 9; ++failures) {
    seconds.push_back(SaveBackoff::delay(failures).count());
  }
  const std::vector<std::int64_t> expected{10, 20, 40, 80, 160, 320, 600, 600, 600};
  BOOST_TEST(seconds == expected, boost::test_tools::per_element());
  BOOST_TEST(SaveBackoff::delay(1'000'000).count() == 600);
}

BOOST_AUTO_TEST_CASE(each_failure_delays_the_next_attempt_until_one_succeeds) {
  const SaveBackoff::Clock::time_point start{};
  SaveBackoff backoff;
  BOOST_TEST(backoff.may_try(start));

  backoff.failed(start);
  BOOST_TEST(!backoff.may_try(start + 9s));
  BOOST_TEST(backoff.may_try(start + 10s));
  backoff.failed(start + 10s);
  BOOST_TEST(!backoff.may_try(start + 29s));
  BOOST_TEST(backoff.may_try(start + 30s));

  backoff.succeeded();
  BOOST_TEST(backoff.may_try(start));
  backoff.failed(start + 40s);
  BOOST_TEST(backoff.may_try(start + 50s));
}
