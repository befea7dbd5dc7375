#include "lockstep/health/sharding_watch.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

using namespace lockstep;

namespace {

/// The means found in 100 steps of 64 images; the first step takes a minute more.
std::vector<ShardingWatch::Means> means_in_steps(const PhaseTimes& times) {
  ShardingWatch watch;
  std::vector<ShardingWatch::Means> all;
  for (int i = 0; i < 100; ++i) {
    PhaseTimes step = times;
    if (i == 0) step.communication += 60;
    if (const auto means = watch.add(step, 64)) all.push_back(*means);
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_waits_for_messages_is_found_once) {
  const auto found =
      means_in_steps({.data = 7, .forward = 0.1, .backward = 0.2, .communication = 0.2});

  BOOST_REQUIRE_EQUAL(found.size(), 1U);
  BOOST_TEST(found[0].step == 0.5, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(found[0].waiting == 0.2, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(found[0].images_per_second == 64 / 0.3, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(a_rank_that_hardly_waits_is_not_reported) {
  BOOST_TEST(
      means_in_steps({.data = 7, .forward = 0.5, .backward = 0.5, .communication = 0.1}).empty());
}
