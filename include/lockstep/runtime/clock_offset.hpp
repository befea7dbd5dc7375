#pragma once

#include "lockstep/core/function_ref.hpp"

#include <cstdint>
#include <span>

namespace lockstep {

class RootChannel;

/// Clock readings of one round trip to rank 0, in nanoseconds: `sent` and `back` by this rank's
/// clock, `there` by rank 0's.
struct ClockEcho {
  std::int64_t sent = 0;
  std::int64_t there = 0;
  std::int64_t back = 0;
};

/// Offset to add to this rank's clock to get rank 0's, measured at `at` by this rank's clock.
struct ClockOffset {
  std::int64_t at = 0;
  std::int64_t offset = 0;
  std::int64_t uncertainty = 0;  ///< maximum error of `offset`
};

/// Pure. Rank 0 reads its clock between this rank's two readings, whatever the delay each way, so
/// each echo bounds the offset; faster echoes give tighter bounds. Uses the intersection of all
/// bounds. If it is empty (a clock was adjusted meanwhile), uses the fastest echo only. `echoes`
/// must not be empty.
[[nodiscard]] ClockOffset estimate_clock_offset(std::span<const ClockEcho> echoes) noexcept;

/// Collective. Exchanges echoes with rank 0, rank by rank. `clock` reads this rank's clock.
[[nodiscard]] ClockOffset measure_clock_offset(RootChannel& channel,
                                               FunctionRef<std::int64_t()> clock);

/// Converts a reading of this rank's clock to rank 0's. Clocks of two hosts drift apart, so the
/// offset is interpolated linearly between the two measurements.
[[nodiscard]] std::int64_t to_root_clock(std::int64_t reading, const ClockOffset& first,
                                         const ClockOffset& last) noexcept;

}  // namespace lockstep
