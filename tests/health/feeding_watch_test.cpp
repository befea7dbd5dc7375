#include "lockstep/health/feeding_watch.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

using namespace lockstep;

namespace {

/// The rates found in `steps` steps of 64 images, of which each waits `data` seconds and computes
/// `compute` seconds.
std::vector<FeedingWatch::Rates> rates_in(int steps, double data, double compute) {
  FeedingWatch watch;
  std::vector<FeedingWatch::Rates> all;
  for (int i = 0; i < steps; ++i) {
    const PhaseTimes times{.data = data, .forward = compute / 3, .backward = compute * 2 / 3};
    if (const auto rates = watch.add(times, 64)) all.push_back(*rates);
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loader_slower_than_the_engine_is_found_once_with_both_rates) {
  const auto found = rates_in(1000, 0.6, 0.4);

  BOOST_REQUIRE_EQUAL(found.size(), 1U);
  BOOST_TEST(found[0].loaded == 64, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(found[0].computed == 160, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(found[0].share == 0.6, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(the_first_steps_do_not_count) {
  FeedingWatch watch;
  std::vector<FeedingWatch::Rates> found;
  for (int i = 0; i < 100; ++i) {
    const bool starting = i < 8;
    const PhaseTimes times{.data = starting ? 0 : 0.6, .forward = starting ? 100 : 0.4};
    if (const auto rates = watch.add(times, 64)) found.push_back(*rates);
  }

  BOOST_REQUIRE_EQUAL(found.size(), 1U);
  BOOST_TEST(found[0].loaded == 64, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(a_loader_that_keeps_up_is_not_reported) {
  BOOST_TEST(rates_in(1000, 0.03, 0.97).empty());
}

BOOST_AUTO_TEST_CASE(few_or_short_steps_decide_nothing) {
  BOOST_TEST(rates_in(27, 60, 40).empty());
  BOOST_TEST(rates_in(28, 60, 40).size() == 1);
  BOOST_TEST(rates_in(100, 0.06, 0.04).empty());
  BOOST_TEST(rates_in(110, 0.06, 0.04).size() == 1);
}
