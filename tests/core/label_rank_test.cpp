#include "lockstep/core/label_rank.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(ranks_are_places_after_a_stable_sort) {
  std::mt19937 random(3);
  for (const std::size_t classes : {1, 2, 7, 100}) {
    for (int row = 0; row < 100; ++row) {
      std::vector<float> logits(classes);
      std::ranges::generate(logits, [&] { return static_cast<float>(random() % 9) - 4; });
      std::vector<std::int32_t> order(classes);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::greater{},
                               [&](std::int32_t k) { return logits[static_cast<std::size_t>(k)]; });
      for (std::int32_t place = 0; place < std::ssize(order); ++place) {
        BOOST_TEST(label_rank(logits, order[static_cast<std::size_t>(place)]) == place);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(zeros_of_both_signs_are_equal) {
  BOOST_TEST(label_rank(std::vector{-0.0F, 0.0F}, 0) == 0);
  BOOST_TEST(label_rank(std::vector{-0.0F, 0.0F}, 1) == 1);
}

BOOST_AUTO_TEST_CASE(a_row_with_nan_is_no_hit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t label : {0, 1, 2}) {
    BOOST_TEST(label_rank(std::vector{3.0F, nan, 1.0F}, label) == 5);
  }
  std::vector<float> logits(300, 0.0F);
  logits[299] = nan;
  BOOST_TEST(label_rank(logits, 0) == 300);
}
