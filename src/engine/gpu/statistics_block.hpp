#pragma once

#include "../batch_statistics.hpp"
#include "device.hpp"

#include <cstdint>
#include <span>

namespace lockstep::gpu {

/// A program's batch statistics: the block on the device that kernels read and write, and its copy
/// in host memory.
class StatisticsBlock final {
 public:
  StatisticsBlock(Device& device, const Graph& graph, std::int64_t batch_size)
      : statistics_(graph, batch_size),
        on_device_(device, statistics_.block_size()),
        on_host_(device, statistics_.block_size(), DeviceArray<float>::Place::host) {}

  [[nodiscard]] BatchStatistics& statistics() noexcept { return statistics_; }
  /// On the device, (padded).
  [[nodiscard]] float* of(StatisticId id) const {
    return on_device_.data() + statistics_.offset_of(id);
  }
  /// Queues the copy to the host; call publish() when it is done.
  void fetch(Device& device) {
    device.copy_to_host(on_host_.data(), on_device_.data(), on_device_.bytes());
  }
  void publish() { statistics_.publish(on_host_.span()); }
  /// Queues the copy of a concatenation to the device.
  void load(Device& device, std::span<const float> running) {
    statistics_.load(running, on_host_.span());
    device.copy_to_device(on_device_.data(), on_host_.data(), on_device_.bytes());
  }

 private:
  BatchStatistics statistics_;
  DeviceArray<float> on_device_;
  DeviceArray<float> on_host_;
};

}  // namespace lockstep::gpu
