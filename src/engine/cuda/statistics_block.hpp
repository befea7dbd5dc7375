#pragma once

#include "device.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::cuda {

/// Each batch norm's mean and biased variance of one program on the device, padded, and their
/// concatenation in host memory for callers.
class StatisticsBlock final {
 public:
  StatisticsBlock(Device& device, const Graph& graph, DataType type, std::int64_t batch_size);

  /// On the device, (padded).
  [[nodiscard]] float* of(StatisticId id) const {
    return device_values_.data() + entries_[static_cast<std::size_t>(id)].padded_offset;
  }
  /// Number of values under a variance: n / (n - 1) makes it unbiased.
  void set_elements(StatisticId variance, double elements) noexcept;
  /// In Graph::statistics() order; variances unbiased; as last published.
  [[nodiscard]] std::span<const float> concatenated() const noexcept {
    return concatenated_.span();
  }
  /// Queues the copy to the host; call publish() when it is done.
  void fetch(Device& device);
  void publish() noexcept;
  /// Whether all statistics last published are finite. A ReLU fused into a norm turns NaN into
  /// zero, so the loss may look sound although earlier layers are not; the statistics show it.
  [[nodiscard]] bool finite() const noexcept { return finite_; }
  /// Queues the copy of a concatenation to the device.
  void load(Device& device, std::span<const float> running);

 private:
  struct Entry {
    std::size_t padded_offset;
    std::size_t offset;
    std::size_t channels;
    float correction;  // n / (n - 1) for variances, else 1
  };
  std::vector<Entry> entries_;
  DeviceArray<float> device_values_;
  DeviceArray<float> host_values_;
  AlignedBuffer<float> concatenated_;
  bool finite_ = true;
};

}  // namespace lockstep::cuda
