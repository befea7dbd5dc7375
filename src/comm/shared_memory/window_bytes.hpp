#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep {

/// Default size of each rank's window in shared memory. Two ranks' windows fit in a shared cache;
/// all windows and counters together fit in the 64 MiB that containers have in /dev/shm by default.
/// A multiple of every common page size.
[[nodiscard]] constexpr std::size_t window_bytes(int ranks) noexcept {
  constexpr std::size_t largest = std::size_t{4} << 20;
  constexpr std::size_t all_windows = std::size_t{48} << 20;
  constexpr std::size_t page = std::size_t{64} << 10;  // the largest page size in common use
  const std::size_t share = all_windows / static_cast<std::size_t>(ranks) / page * page;
  return std::clamp(share, 4 * page, largest);
}

}  // namespace lockstep
