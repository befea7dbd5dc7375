#include "judge_devices.hpp"

#include <algorithm>

namespace lockstep::watch {
namespace {

/// Whether the host waits for the device, so that its counts are up to date.
bool is_known(const RankReport& report) noexcept {
  return report.present() && report.waits() && report.reading.device.awaited;
}

std::uint64_t completed_by(const RankReport* report) noexcept {
  return report->reading.device.completed;
}

}  // namespace

std::optional<DeviceFault> find_device_fault(std::span<const RankReport> reports) {
  std::vector<const RankReport*> known;
  for (const RankReport& report : reports) {
    if (is_known(report)) known.push_back(&report);
  }
  if (known.empty()) return std::nullopt;
  const auto least = std::ranges::min_element(known, {}, completed_by);
  DeviceFault fault{.collective = completed_by(*least) + 1};
  for (const RankReport* report : known) {
    if (report->reading.device.reached < fault.collective) {
      fault.late.push_back(report->rank);
    } else if (completed_by(report) < fault.collective) {
      ++fault.waiting;
    }
  }
  return fault;
}

}  // namespace lockstep::watch
