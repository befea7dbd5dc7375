#include "rounds.hpp"

namespace lockstep::doctor {

std::vector<Round> plan_rounds(int players) {
  // The circle method: the last player stays, the others advance by one place per round.
  const int seats = players + players % 2;
  std::vector<Round> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    Round partners(static_cast<std::size_t>(players));
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

std::vector<Round> plan_ring(int players) {
  std::vector<Round> rounds;
  const auto meet = [&](int one, int other) {
    rounds.back()[static_cast<std::size_t>(one)] = other;
    rounds.back()[static_cast<std::size_t>(other)] = one;
  };
  // First all pairs (k, k + 1) with even k, then those with odd k.
  for (const int parity : {0, 1}) {
    if (players < 2 + parity) return rounds;
    rounds.emplace_back(players);
    for (int one = parity; one + 1 < players; one += 2) meet(one, one + 1);
  }
  // Closes the ring.
  rounds.emplace_back(players);
  meet(0, players - 1);
  return rounds;
}

}  // namespace lockstep::doctor
