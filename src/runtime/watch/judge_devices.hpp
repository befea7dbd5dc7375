#pragma once

#include "rank_report.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::watch {

/// The devices that others wait for.
struct DeviceFault {
  /// The first collective that the late devices have not reached or, if none is late, the first
  /// that not all devices have completed.
  std::uint64_t collective = 0;
  std::vector<int> late = {};  ///< their ranks, ascending; empty: the collective itself hangs
  std::size_t waiting = 0;  ///< number of devices that have reached it and not completed it
};

/// Pure. What the counts of collectives say, for ranks that all wait; only ranks that wait for
/// their devices are considered. nullopt: no fault is known.
[[nodiscard]] std::optional<DeviceFault> find_device_fault(std::span<const RankReport> reports);

}  // namespace lockstep::watch
