#include "judge_devices.hpp"

#include <algorithm>
#include <limits>

namespace lockstep::watch {
namespace {

/// Whether the host waits for the device, so that its counts are up to date.
bool is_known(const RankReport& report) noexcept {
  return report.present() && report.waits() && report.reading.device.awaited;
}

/// The first collective that not all known devices have completed.
std::uint64_t first_incomplete(std::span<const RankReport> reports) noexcept {
  std::uint64_t completed = std::numeric_limits<std::uint64_t>::max() - 1;
  for (const RankReport& report : reports) {
    if (is_known(report)) completed = std::min(completed, report.reading.device.completed);
  }
  return completed + 1;
}

}  // namespace

std::optional<DeviceFault> find_device_fault(std::span<const RankReport> reports) {
  const std::uint64_t first = first_incomplete(reports);
  DeviceFault fault{.collective = std::numeric_limits<std::uint64_t>::max()};
  bool any_known = false;
  bool all_known = true;
  for (const RankReport& report : reports) {
    if (!is_known(report)) {
      all_known = all_known && !report.present();
      continue;
    }
    any_known = true;
    const DeviceProgress::Reading& device = report.reading.device;
    // A device that has completed all collectives has only its own work left.
    if (device.reached >= first && device.completed < device.queued) continue;
    fault.late.push_back(report.rank);
    fault.collective = std::min(fault.collective, device.completed + 1);
  }
  if (fault.late.empty()) {
    // A rank that waits elsewhere may not have queued its part.
    if (!any_known || !all_known) return std::nullopt;
    fault.collective = first;
  }
  for (const RankReport& report : reports) {
    const DeviceProgress::Reading& device = report.reading.device;
    const bool is_in = device.reached >= fault.collective && device.completed < fault.collective;
    if (is_known(report) && is_in) ++fault.waiting;
  }
  return fault;
}

}  // namespace lockstep::watch
