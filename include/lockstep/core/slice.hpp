#pragma once

#include <cstdint>

namespace lockstep {

struct Slice {
  std::int64_t begin;
  std::int64_t count;
  [[nodiscard]] constexpr std::int64_t end() const noexcept { return begin + count; }
  friend constexpr bool operator==(const Slice&, const Slice&) = default;
};

/// Part `index` of [0, total) split into `parts`; sizes differ by at most one, larger parts first.
[[nodiscard]] constexpr Slice slice_of(std::int64_t total, std::int64_t parts,
                                       std::int64_t index) noexcept {
  const std::int64_t quotient = total / parts;
  const std::int64_t rest = total % parts;
  return {.begin = index * quotient + (index < rest ? index : rest),
          .count = quotient + (index < rest ? 1 : 0)};
}

}  // namespace lockstep
