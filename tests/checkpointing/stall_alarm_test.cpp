#include <boost/test/unit_test.hpp>

#include "lockstep/checkpointing/save_schedule.hpp"

#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

const StallAlarm::Clock::time_point start{};

}  // namespace

BOOST_AUTO_TEST_CASE(it_reports_each_time_the_duration_doubles) {
  StallAlarm alarm(60s);
  std::vector<std::int64_t> reported;
  for (auto at = 0s; at <= 1000s; ++at) {
    if (const auto waited = alarm.stalled(1, start + at)) reported.push_back(*waited / 1s);
  }
  const std::vector<std::int64_t> expected{60, 120, 240, 480, 960};
  BOOST_TEST(reported == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_query_after_a_long_time_reports_once) {
  StallAlarm alarm(60s);
  BOOST_TEST(!alarm.stalled(1, start));
  BOOST_TEST((alarm.stalled(1, start + 500s) == 500s));
  BOOST_TEST(!alarm.stalled(1, start + 501s));
  BOOST_TEST((alarm.stalled(1, start + 960s) == 960s));
}

BOOST_AUTO_TEST_CASE(progress_restarts_the_clock) {
  StallAlarm alarm(60s);
  BOOST_TEST(!alarm.stalled(1, start));
  BOOST_TEST(alarm.stalled(1, start + 60s).has_value());
  BOOST_TEST(!alarm.stalled(2, start + 119s));
  BOOST_TEST(!alarm.stalled(2, start + 178s));
  BOOST_TEST((alarm.stalled(2, start + 179s) == 60s));
}
