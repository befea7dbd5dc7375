#pragma once

#include <optional>
#include <vector>

namespace lockstep::doctor {

/// Each player's partner; nullopt: it rests.
using Round = std::vector<std::optional<int>>;

/// A tournament, in which each meets every other once and nobody meets two at a time.
[[nodiscard]] std::vector<Round> plan_rounds(int players);

/// The same for a ring, in which each meets its two neighbours.
[[nodiscard]] std::vector<Round> plan_ring(int players);

}  // namespace lockstep::doctor
