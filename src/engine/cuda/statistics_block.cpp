#include "statistics_block.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cuda {

StatisticsBlock::StatisticsBlock(Device& device, const Graph& graph, DataType type,
                                 std::int64_t batch_size) {
  constexpr std::size_t alignment = 64;  // in values; kernels need 256 bytes
  std::size_t padded_offset = 0;
  std::size_t offset = 0;
  for (const RunningStatistic& statistic : graph.statistics()) {
    const auto channels = static_cast<std::size_t>(statistic.channels);
    entries_.push_back({.padded_offset = padded_offset,
                        .offset = offset,
                        .channels = channels,
                        .correction = 1.0F});
    const auto padded = static_cast<std::size_t>(padded_channels(statistic.channels, type));
    padded_offset += (padded + alignment - 1) / alignment * alignment;
    offset += channels;
  }
  for (const Node& node : graph.nodes()) {
    if (node.statistics.empty()) continue;
    set_elements(node.statistics[1],
                 static_cast<double>(batch_size * node.output[1] * node.output[2]));
  }
  device_values_ = DeviceArray<float>(device, padded_offset);
  host_values_ = DeviceArray<float>(device, padded_offset, DeviceArray<float>::Place::host);
  concatenated_ = AlignedBuffer<float>(offset);
}

void StatisticsBlock::set_elements(StatisticId variance, double elements) noexcept {
  entries_[static_cast<std::size_t>(variance)].correction =
      elements < 2 ? 1.0F : static_cast<float>(elements / (elements - 1));
}

void StatisticsBlock::fetch(Device& device) {
  device.copy_to_host(host_values_.data(), device_values_.data(), device_values_.bytes());
}

void StatisticsBlock::publish() noexcept {
  finite_ = true;
  for (const Entry& entry : entries_) {
    for (std::size_t c = 0; c < entry.channels; ++c) {
      const float value = host_values_.data()[entry.padded_offset + c] * entry.correction;
      concatenated_[entry.offset + c] = value;
      finite_ = finite_ && std::isfinite(value);
    }
  }
}

void StatisticsBlock::load(Device& device, std::span<const float> running) {
  std::fill_n(host_values_.data(), host_values_.size(), 0.0F);
  for (const Entry& entry : entries_) {
    std::copy_n(running.data() + entry.offset, entry.channels,
                host_values_.data() + entry.padded_offset);
  }
  device.copy_to_device(device_values_.data(), host_values_.data(), device_values_.bytes());
}

}  // namespace lockstep::cuda
