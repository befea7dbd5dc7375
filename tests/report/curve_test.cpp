#include <boost/test/unit_test.hpp>

#include "lockstep/report/curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

using namespace lockstep::report;

namespace {

/// Rows of step 1, 2, ... with a value of step + 0.5, and NaN in a second series.
Curve counting(std::int64_t rows, std::size_t most) {
  Curve curve({"value", "absent"}, most);
  for (std::int64_t step = 1; step <= rows; ++step) {
    const std::array<double, 2> values{static_cast<double>(step) + 0.5, unknown};
    curve.add({.step = static_cast<double>(step)}, values);
  }
  return curve;
}

}  // namespace

BOOST_AUTO_TEST_CASE(few_rows_stay_single) {
  const Curve curve = counting(20, 10);

  BOOST_TEST(curve.bins() == 20U);
  BOOST_TEST(curve.stride() == 1);
  BOOST_TEST(curve.range(19, 0).mean() == 20.5);
  BOOST_TEST(curve.range(19, 1).count == 0);
}

BOOST_AUTO_TEST_CASE(bins_are_bounded_and_cover_every_row_once) {
  for (const std::int64_t rows : {21, 39, 40, 41, 1000, 12'345}) {
    const Curve curve = counting(rows, 10);

    BOOST_TEST(curve.bins() <= 20U);
    BOOST_TEST(curve.bins() >= 10U);
    BOOST_TEST(curve.rows() == rows);
    double sum = 0;
    std::int64_t count = 0;
    for (std::size_t bin = 0; bin < curve.bins(); ++bin) {
      const Range& range = curve.range(bin, 0);
      BOOST_TEST(range.max == curve.position(bin).step + 0.5);
      BOOST_TEST(range.min == static_cast<double>(count) + 1.5);
      sum += range.sum;
      count += range.count;
    }
    BOOST_TEST(count == rows);
    const auto n = static_cast<double>(rows);
    BOOST_TEST(sum == n * (n + 1) / 2 + 0.5 * n);
  }
}

BOOST_AUTO_TEST_CASE(an_outlier_stays_visible) {
  Curve curve({"loss"}, 50);
  for (int step = 0; step < 100'000; ++step) {
    const std::array<double, 1> loss{step == 77'777 ? 9.0 : 1.0};
    curve.add({.step = static_cast<double>(step)}, loss);
  }

  double greatest = 0;
  for (std::size_t bin = 0; bin < curve.bins(); ++bin) {
    greatest = std::max(greatest, curve.range(bin, 0).max);
  }
  BOOST_TEST(greatest == 9.0);
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite_do_not_count) {
  Curve curve({"loss"}, 1);
  for (const double value : {1.0, unknown, 3.0, std::numeric_limits<double>::infinity()}) {
    const std::array<double, 1> loss{value};
    curve.add({}, loss);
  }

  BOOST_TEST(curve.range(0, 0).count + curve.range(1, 0).count == 2);
  BOOST_TEST(curve.range(0, 0).mean() == 1.0);
  BOOST_TEST(std::isnan(Range{}.mean()));
}
