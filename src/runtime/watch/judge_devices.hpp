#pragma once

#include "rank_report.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::watch {

/// The first collective that not all devices have completed.
struct DeviceFault {
  std::uint64_t collective = 0;
  /// Ranks whose devices have not reached it, ascending; empty: the collective itself hangs.
  std::vector<int> late = {};
  std::size_t waiting = 0;  ///< number of devices that have reached it and not completed it
};

/// What the counts of collectives say about ranks that all wait. Pure. Only ranks that wait for
/// their devices are considered; nullopt: there are none.
[[nodiscard]] std::optional<DeviceFault> find_device_fault(std::span<const RankReport> reports);

}  // namespace lockstep::watch
