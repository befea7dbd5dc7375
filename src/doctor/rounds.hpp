#pragma once

#include <optional>
#include <vector>

namespace lockstep::doctor {

/// Each player's partner; nullopt: none in this round.
using Round = std::vector<std::optional<int>>;

/// A round-robin tournament: each pair meets once, and a player has one partner per round.
[[nodiscard]] std::vector<Round> plan_rounds(int players);

/// The same for a ring: each player meets its two neighbours.
[[nodiscard]] std::vector<Round> plan_ring(int players);

}  // namespace lockstep::doctor
