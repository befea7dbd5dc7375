#include <boost/test/unit_test.hpp>

#include "../../src/comm/shared_memory/piece_exchange.hpp"
#include "../../src/comm/shared_memory/window_bytes.hpp"

using namespace lockstep;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

}  // namespace

BOOST_AUTO_TEST_CASE(all_windows_and_counters_fit_in_a_containers_shared_memory) {
  for (int ranks = 2; ranks <= 192; ++ranks) {
    const std::size_t windows = static_cast<std::size_t>(ranks) * window_bytes(ranks);
    BOOST_TEST(windows <= 48 * mebibyte, ranks << " ranks use " << windows << " bytes");
    BOOST_TEST(windows + PieceExchange::counter_bytes(ranks) < 49 * mebibyte);
  }
}

BOOST_AUTO_TEST_CASE(windows_of_few_ranks_are_as_large_as_a_cache) {
  for (const int ranks : {2, 4, 8, 12}) BOOST_TEST(window_bytes(ranks) == 4 * mebibyte);
  BOOST_TEST(window_bytes(16) == 3 * mebibyte);
  BOOST_TEST(window_bytes(128) == 384 * 1024U);
}

BOOST_AUTO_TEST_CASE(windows_are_whole_pages_and_hold_all_slices) {
  constexpr std::size_t slice = 128;  // bytes of the smallest slice that the exchange supports
  for (int ranks = 2; ranks <= 256; ++ranks) {
    BOOST_TEST(window_bytes(ranks) % 65536 == 0U);
    BOOST_TEST(window_bytes(ranks) / 8 / static_cast<std::size_t>(ranks) >= slice);
  }
}
