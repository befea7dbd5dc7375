#pragma once

#include <optional>
#include <vector>

namespace lockstep::doctor {

/// A tournament of `players`: who meets whom in each round, so that each meets every other once
/// and nobody meets two at a time. partners[round][player]; nullopt: it rests.
[[nodiscard]] std::vector<std::vector<std::optional<int>>> plan_rounds(int players);

/// Neighbours in a ring of ranks, met two by two: `met[i]` is the i-th turn of each rank.
struct Turn {
  int first = 0;
  int second = 0;
};
/// The turns of `rank` among `ranks`, in an order in which no two ranks wait for each other.
[[nodiscard]] std::vector<Turn> plan_turns(int rank, int ranks);

}  // namespace lockstep::doctor
