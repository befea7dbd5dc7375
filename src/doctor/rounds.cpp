#include "rounds.hpp"

namespace lockstep::doctor {

std::vector<std::vector<std::optional<int>>> plan_rounds(int players) {
  // The circle method: the last player stays, the others move on by one place a round.
  const int seats = players + players % 2;
  std::vector<std::vector<std::optional<int>>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    std::vector<std::optional<int>> partners(static_cast<std::size_t>(players));
    const auto meet = [&](int one, int other) {
      if (one >= players || other >= players) return;
      partners[static_cast<std::size_t>(one)] = other;
      partners[static_cast<std::size_t>(other)] = one;
    };
    const int circle = seats - 1;
    meet(circle, round);
    for (int i = 1; i <= (circle - 1) / 2; ++i) {
      meet((round + i) % circle, (round - i + circle) % circle);
    }
    rounds.push_back(std::move(partners));
  }
  return rounds;
}

std::vector<Turn> plan_turns(int rank, int ranks) {
  std::vector<Turn> turns;
  const auto add = [&](int first) {
    if (first >= 0 && first + 1 < ranks) turns.push_back({.first = first, .second = first + 1});
  };
  // First all pairs that begin with an even rank, then those that begin with an odd one.
  const bool even = rank % 2 == 0;
  add(even ? rank : rank - 1);
  add(even ? rank - 1 : rank);
  // The ring closes where that is another pair.
  if (ranks > 2 && (rank == 0 || rank == ranks - 1)) {
    turns.push_back({.first = 0, .second = ranks - 1});
  }
  return turns;
}

}  // namespace lockstep::doctor
