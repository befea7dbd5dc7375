#include "lockstep/health/early_steps.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

using namespace lockstep;

namespace {

/// The numbers of the steps, of 50, that complete the sums; step n takes n seconds.
std::vector<int> completed_by(const EarlySteps::Options& options) {
  EarlySteps early(options);
  std::vector<int> all;
  for (int step = 1; step <= 50; ++step) {
    if (early.add({.forward = static_cast<double>(step)}, 1)) all.push_back(step);
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_sums_are_complete_once_after_enough_steps_and_seconds) {
  BOOST_TEST((completed_by({}) == std::vector{1}));
  BOOST_TEST((completed_by({.skipped = 2, .enough = 10}) == std::vector{12}));
  BOOST_TEST((completed_by({.skipped = 2, .enough = 3, .seconds = 12}) == std::vector{5}));
  BOOST_TEST((completed_by({.skipped = 2, .enough = 3, .seconds = 12.5}) == std::vector{6}));
  BOOST_TEST(completed_by({.enough = 51}).empty());
}

BOOST_AUTO_TEST_CASE(skipped_steps_are_not_in_the_sums) {
  EarlySteps early({.skipped = 1, .enough = 2});
  BOOST_TEST(!early.add({.data = 100, .optimizer = 100}, 1000).has_value());
  BOOST_TEST(!early.add({.data = 1, .optimizer = 2}, 3).has_value());

  const auto sums = early.add({.data = 4, .communication = 5}, 6);

  BOOST_TEST_REQUIRE(sums.has_value());
  BOOST_TEST(sums->steps == 2);
  BOOST_TEST(sums->samples == 9);
  BOOST_TEST(sums->times.data == 5);
  BOOST_TEST(sums->times.total() == 12);
}
