#include "batch_statistics.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

BatchStatistics::BatchStatistics(const Graph& graph, std::int64_t batch_size) {
  constexpr std::size_t alignment = 64;  // in values; a device's kernels need 256 bytes
  std::size_t offset = 0;
  for (const RunningStatistic& statistic : graph.statistics()) {
    const auto channels = static_cast<std::size_t>(statistic.channels);
    entries_.push_back(
        {.block_offset = block_size_, .offset = offset, .channels = channels, .correction = 1.0F});
    block_size_ += (channels + alignment - 1) / alignment * alignment;
    offset += channels;
  }
  for (const Node& node : graph.nodes()) {
    if (node.statistics.empty()) continue;
    set_elements(node.statistics[1],
                 static_cast<double>(batch_size * node.output[1] * node.output[2]));
  }
  concatenated_ = AlignedBuffer<float>(offset);
}

void BatchStatistics::set_elements(StatisticId variance, double elements) noexcept {
  entries_[static_cast<std::size_t>(variance)].correction =
      elements < 2 ? 1.0F : static_cast<float>(elements / (elements - 1));
}

void BatchStatistics::publish(std::span<const float> block) noexcept {
  finite_ = true;
  for (const Entry& entry : entries_) {
    for (std::size_t c = 0; c < entry.channels; ++c) {
      const float value = block[entry.block_offset + c] * entry.correction;
      concatenated_[entry.offset + c] = value;
      finite_ = finite_ && std::isfinite(value);
    }
  }
}

void BatchStatistics::load(std::span<const float> running, std::span<float> block) const noexcept {
  std::ranges::fill(block, 0.0F);
  for (const Entry& entry : entries_) {
    std::ranges::copy(running.subspan(entry.offset, entry.channels),
                      block.begin() + static_cast<std::ptrdiff_t>(entry.block_offset));
  }
}

AlignedBuffer<float> initial_running_statistics(const Graph& graph) {
  std::size_t size = 0;
  for (const RunningStatistic& statistic : graph.statistics()) {
    size += static_cast<std::size_t>(statistic.channels);
  }
  AlignedBuffer<float> values(size);
  float* next = values.data();
  for (const RunningStatistic& statistic : graph.statistics()) {
    next = std::fill_n(next, statistic.channels, statistic.initial_value);
  }
  return values;
}

}  // namespace lockstep
