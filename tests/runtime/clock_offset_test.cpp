#include <boost/test/unit_test.hpp>

#include "lockstep/runtime/clock_offset.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

using namespace lockstep;

namespace {

/// An echo sent at `at` that takes `out` to rank 0 and `home` back; rank 0's clock is `skew` ahead.
ClockEcho echo(std::int64_t at, std::int64_t skew, std::int64_t out, std::int64_t home) {
  return {.sent = at, .there = at + out + skew, .back = at + out + home};
}

}  // namespace

BOOST_AUTO_TEST_CASE(equal_delays_give_the_offset_itself) {
  for (const std::int64_t skew :
       {std::int64_t{0}, std::int64_t{5'000'000'000}, std::int64_t{-77}}) {
    const std::vector<ClockEcho> echoes{echo(100, skew, 50, 50)};

    const ClockOffset found = estimate_clock_offset(echoes);

    BOOST_TEST(found.offset == skew);
    BOOST_TEST(found.uncertainty == 50);
    BOOST_TEST(found.at == 200);
  }
}

BOOST_AUTO_TEST_CASE(the_quickest_echo_decides_over_slow_ones) {
  const std::vector<ClockEcho> echoes{echo(0, 1000, 90'000, 10), echo(200'000, 1000, 20, 30),
                                      echo(300'000, 1000, 400, 70'000)};

  const ClockOffset found = estimate_clock_offset(echoes);

  BOOST_TEST(std::abs(found.offset - 1000) <= found.uncertainty);
  BOOST_TEST(found.uncertainty <= 25);
}

BOOST_AUTO_TEST_CASE(delays_that_differ_each_way_still_bound_the_offset) {
  // The way out is quick in one echo, the way back in the other: together they bound the offset
  // better than each alone.
  const std::vector<ClockEcho> echoes{echo(0, -500, 10, 1000), echo(5000, -500, 1000, 10)};

  const ClockOffset found = estimate_clock_offset(echoes);

  BOOST_TEST(found.offset == -500);
  BOOST_TEST(found.uncertainty == 10);
}

BOOST_AUTO_TEST_CASE(the_true_offset_is_within_the_stated_uncertainty) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 2000; ++run) {
    const auto below = [&](std::int64_t limit) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
    };
    const std::int64_t skew = below(std::int64_t{1} << 60) - (std::int64_t{1} << 59);
    const std::int64_t slow_way = 1 + below(1'000'000);
    std::vector<ClockEcho> echoes;
    std::int64_t quickest = std::int64_t{1} << 60;
    for (int i = 0; i < 24; ++i) {
      echoes.push_back(echo(10'000'000 * i, skew, below(slow_way), below(5000)));
      quickest = std::min(quickest, echoes.back().back - echoes.back().sent);
    }

    const ClockOffset found = estimate_clock_offset(echoes);

    BOOST_TEST_REQUIRE(std::abs(found.offset - skew) <= found.uncertainty);
    BOOST_TEST_REQUIRE(found.uncertainty <= quickest / 2 + 1);
  }
}

BOOST_AUTO_TEST_CASE(if_the_clock_is_set_meanwhile_the_quickest_echo_decides) {
  const std::vector<ClockEcho> echoes{echo(0, 0, 500, 500), echo(10'000, 1'000'000, 40, 20)};

  const ClockOffset found = estimate_clock_offset(echoes);

  BOOST_TEST(std::abs(found.offset - 1'000'000) <= found.uncertainty);
  BOOST_TEST(found.uncertainty == 30);
}

BOOST_AUTO_TEST_CASE(between_two_measurements_the_offset_is_interpolated_linearly) {
  const ClockOffset first{.at = 1000, .offset = 50, .uncertainty = 1};
  const ClockOffset last{.at = 3000, .offset = 90, .uncertainty = 1};

  BOOST_TEST(to_root_clock(1000, first, last) == 1050);
  BOOST_TEST(to_root_clock(2000, first, last) == 2070);
  BOOST_TEST(to_root_clock(3000, first, last) == 3090);
  BOOST_TEST(to_root_clock(0, first, last) == 50);
  BOOST_TEST(to_root_clock(9000, first, last) == 9090);
  BOOST_TEST(to_root_clock(1500, first, first) == 1550);
}
