#pragma once

#include "lockstep/core/function_ref.hpp"

#include <cstdint>
#include <span>

namespace lockstep {

class RootChannel;

/// A message to rank 0 and back, in nanoseconds: this rank's clock, rank 0's when it had the
/// message, this rank's again.
struct ClockEcho {
  std::int64_t sent = 0;
  std::int64_t there = 0;
  std::int64_t back = 0;
};

/// What to add to this rank's clock for rank 0's, as found when it showed `at`.
struct ClockOffset {
  std::int64_t at = 0;
  std::int64_t offset = 0;
  std::int64_t uncertainty = 0;  ///< the true one is no farther away
};

/// Pure. However long a message took each way, rank 0 read its clock between the two readings
/// here, so each echo bounds the offset, the quickest ones most; what all allow is taken. Where
/// they contradict each other (a clock was set right meanwhile), the quickest alone. `echoes` is
/// not empty.
[[nodiscard]] ClockOffset estimate_clock_offset(std::span<const ClockEcho> echoes) noexcept;

/// By echoes with rank 0, rank after rank. Collective. `clock` is this rank's.
[[nodiscard]] ClockOffset measure_clock_offset(RootChannel& channel,
                                               FunctionRef<std::int64_t()> clock);

/// A reading of this rank's clock, by rank 0's. Clocks of two hosts drift apart, so between the
/// two times at which the offset was measured it goes in a straight line from one to the other.
[[nodiscard]] std::int64_t to_root_clock(std::int64_t reading, const ClockOffset& first,
                                         const ClockOffset& last) noexcept;

}  // namespace lockstep
