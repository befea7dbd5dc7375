#define BOOST_TEST_MODULE doctor_rounds
#include "doctor/rounds.hpp"

#include <boost/test/unit_test.hpp>

#include <map>
#include <set>
#include <utility>

using namespace lockstep::doctor;

BOOST_AUTO_TEST_CASE(each_meets_each_other_once) {
  for (int players = 1; players < 20; ++players) {
    std::set<std::pair<int, int>> met;
    const auto rounds = plan_rounds(players);
    for (const auto& partners : rounds) {
      for (int player = 0; player < players; ++player) {
        const auto other = partners[static_cast<std::size_t>(player)];
        if (!other) continue;
        BOOST_TEST(*other != player);
        BOOST_TEST(partners[static_cast<std::size_t>(*other)].value() == player);
        if (player < *other) BOOST_TEST(met.insert({player, *other}).second);
      }
    }
    BOOST_TEST(met.size() == static_cast<std::size_t>(players * (players - 1) / 2));
    BOOST_TEST(rounds.size() <= static_cast<std::size_t>(players));
  }
}

BOOST_AUTO_TEST_CASE(neighbours_take_turns_without_a_deadlock) {
  for (int ranks = 1; ranks < 12; ++ranks) {
    std::map<int, std::vector<Turn>> left;
    for (int rank = 0; rank < ranks; ++rank) left[rank] = plan_turns(rank, ranks);
    // Both of a pair must have it as their next turn.
    std::set<std::pair<int, int>> met;
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks; ++rank) {
        if (left[rank].empty() || left[rank].front().first != rank) continue;
        const Turn turn = left[rank].front();
        auto& others = left[turn.second];
        if (others.empty() || others.front().first != rank) continue;
        left[rank].erase(left[rank].begin());
        others.erase(others.begin());
        met.insert({turn.first, turn.second});
        moved = true;
      }
    }
    for (const auto& [rank, turns] : left) BOOST_TEST(turns.empty());
    BOOST_TEST(met.size() == static_cast<std::size_t>(ranks < 3 ? ranks - 1 : ranks));
  }
}
