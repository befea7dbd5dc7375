#include "lockstep/runtime/clock_offset.hpp"

#include "lockstep/runtime/root_channel.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace lockstep {
namespace {

/// Enough that some echoes find rank 0 already waiting, and still fast with thousands of ranks.
constexpr int echoes_a_rank = 24;

}  // namespace

ClockOffset estimate_clock_offset(std::span<const ClockEcho> echoes) noexcept {
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  for (const ClockEcho& echo : echoes) {
    low = std::max(low, echo.there - echo.back);
    high = std::min(high, echo.there - echo.sent);
  }
  const ClockEcho& quickest = *std::ranges::min_element(
      echoes, {}, [](const ClockEcho& echo) { return echo.back - echo.sent; });
  if (low > high) {
    low = quickest.there - quickest.back;
    high = quickest.there - quickest.sent;
  }
  const std::int64_t offset = low + (high - low) / 2;
  return {.at = quickest.back, .offset = offset, .uncertainty = high - offset};
}

ClockOffset measure_clock_offset(RootChannel& channel, FunctionRef<std::int64_t()> clock) {
  std::int64_t there = 0;
  const auto bytes = std::as_writable_bytes(std::span(&there, 1));
  if (channel.rank() == 0) {
    for (int rank = 1; rank < channel.size(); ++rank) {
      for (int i = 0; i < echoes_a_rank; ++i) {
        channel.receive(rank, bytes);
        there = clock();
        channel.send(rank, bytes);
      }
    }
    return {.at = clock()};
  }
  std::array<ClockEcho, echoes_a_rank> echoes;
  for (ClockEcho& echo : echoes) {
    echo.sent = clock();
    channel.send(0, bytes);
    channel.receive(0, bytes);
    echo.back = clock();
    echo.there = there;
  }
  return estimate_clock_offset(echoes);
}

std::int64_t to_root_clock(std::int64_t reading, const ClockOffset& first,
                           const ClockOffset& last) noexcept {
  if (last.at <= first.at) return reading + first.offset;
  const double share = std::clamp(
      static_cast<double>(reading - first.at) / static_cast<double>(last.at - first.at), 0.0, 1.0);
  const auto drift = static_cast<double>(last.offset - first.offset);
  return reading + first.offset + static_cast<std::int64_t>(share * drift);
}

}  // namespace lockstep
