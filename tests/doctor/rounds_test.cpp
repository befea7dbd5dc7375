#include "doctor/rounds.hpp"

#include <boost/test/unit_test.hpp>

#include <set>
#include <utility>

using namespace lockstep::doctor;

namespace {

/// The pairs of all rounds. Checks that no player is paired with itself, with two players in a
/// round, or with a player twice.
std::set<std::pair<int, int>> pairs_of(const std::vector<Round>& rounds) {
  std::set<std::pair<int, int>> found;
  for (const Round& partners : rounds) {
    for (std::size_t player = 0; player < partners.size(); ++player) {
      if (!partners[player]) continue;
      const int one = static_cast<int>(player);
      const int other = *partners[player];
      BOOST_TEST(other != one);
      BOOST_TEST(partners[static_cast<std::size_t>(other)].value() == one);
      if (one < other) BOOST_TEST(found.insert({one, other}).second);
    }
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_player_is_paired_with_each_other_once) {
  for (int players = 1; players < 20; ++players) {
    const auto rounds = plan_rounds(players);

    BOOST_TEST(pairs_of(rounds).size() == static_cast<std::size_t>(players * (players - 1) / 2));
    BOOST_TEST(rounds.size() <= static_cast<std::size_t>(players));
  }
}

BOOST_AUTO_TEST_CASE(in_a_ring_each_player_is_paired_with_its_neighbours) {
  for (int players = 1; players < 20; ++players) {
    std::set<std::pair<int, int>> expected;
    for (int one = 0; one + 1 < players; ++one) expected.insert({one, one + 1});
    if (players > 2) expected.insert({0, players - 1});

    BOOST_TEST((pairs_of(plan_ring(players)) == expected));
  }
}
