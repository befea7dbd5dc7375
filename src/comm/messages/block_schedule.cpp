#include "lockstep/comm/block_schedule.hpp"

#include <algorithm>
#include <bit>

namespace lockstep {

BlockSchedule choose_schedule(int ranks) {
  constexpr int most_of_a_ring = 8;
  return ranks <= most_of_a_ring ? BlockSchedule::ring : BlockSchedule::halving;
}

int rounds_of(BlockSchedule schedule, int ranks) {
  if (schedule == BlockSchedule::ring) return ranks - 1;
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

std::vector<BlockRound> reduce_scatter_rounds(BlockSchedule schedule, int rank, int ranks) {
  const auto modulo = [ranks](int value) { return (value % ranks + ranks) % ranks; };
  std::vector<BlockRound> rounds;
  if (schedule == BlockSchedule::ring) {
    for (int round = 0; round + 1 < ranks; ++round) {
      rounds.push_back({.to = modulo(rank + 1),
                        .from = modulo(rank - 1),
                        .sends = {.first = modulo(rank - 1 - round), .count = 1},
                        .receives = {.first = modulo(rank - 2 - round), .count = 1}});
    }
    return rounds;
  }
  // A rank still holds partial sums of the `held` blocks from its own on. It sends the upper half.
  for (int held = ranks; held > 1;) {
    const int kept = (held + 1) / 2;
    rounds.push_back({.to = modulo(rank + kept),
                      .from = modulo(rank - kept),
                      .sends = {.first = modulo(rank + kept), .count = held - kept},
                      .receives = {.first = rank, .count = held - kept}});
    held = kept;
  }
  return rounds;
}

std::vector<BlockRound> all_gather_rounds(BlockSchedule schedule, int rank, int ranks) {
  std::vector<BlockRound> rounds = reduce_scatter_rounds(schedule, rank, ranks);
  std::ranges::reverse(rounds);
  for (BlockRound& round : rounds) {
    std::swap(round.to, round.from);
    std::swap(round.sends, round.receives);
  }
  return rounds;
}

}  // namespace lockstep
