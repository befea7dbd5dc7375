#pragma once

#include "../cuda_calls.hpp"
#include "lockstep/comm/device_progress.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Follows the collectives of one stream by events around each, and reports to a DeviceProgress
/// which of them the device has reached and completed.
class CollectiveMarks final {
 public:
  /// `progress` null: nothing is recorded. Both must outlive it.
  CollectiveMarks(const CudaCalls& cuda, DeviceProgress* progress);

  /// Call just before and after a collective is queued in `stream`, outside of a capture.
  void begin(CudaStream stream);
  void end(CudaStream stream);
  /// Queries events; never waits.
  void poll();

 private:
  struct Mark {
    EventHandle before;
    EventHandle after;
    std::uint64_t number = 0;
  };
  /// More than a step queues before the host waits: synchronised norms have two each, 155 in
  /// ResNet-152, and the next forward is queued early. If there are more, one mark stands for
  /// several collectives.
  static constexpr std::size_t most = 1024;
  [[nodiscard]] Mark& at(std::size_t position) noexcept { return marks_[position % most]; }

  const CudaCalls& cuda_;
  DeviceProgress* progress_;
  std::vector<Mark> marks_;  ///< a ring
  // Positions in the ring, increasing forever: completed_ <= reached_ <= end_.
  std::size_t completed_ = 0;
  std::size_t reached_ = 0;
  std::size_t end_ = 0;
  std::uint64_t queued_ = 0;  ///< number of the newest collective
};

}  // namespace lockstep
