#include "statistics.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cpu {

StatisticsBlock::StatisticsBlock(const Graph& graph, std::int64_t batch_size) {
  std::size_t aligned_offset = 0;
  std::size_t offset = 0;
  for (const RunningStatistic& statistic : graph.statistics()) {
    const auto channels = static_cast<std::size_t>(statistic.channels);
    entries_.push_back({.aligned_offset = aligned_offset,
                        .offset = offset,
                        .channels = channels,
                        .correction = 1.0F});
    aligned_offset += (channels + 15) / 16 * 16;
    offset += channels;
  }
  for (const Node& node : graph.nodes()) {
    if (node.statistics.empty()) continue;
    set_elements(node.statistics[1],
                 static_cast<double>(batch_size * node.output[1] * node.output[2]));
  }
  aligned_ = AlignedBuffer<float>(aligned_offset);
  concatenated_ = AlignedBuffer<float>(offset);
}

void StatisticsBlock::set_elements(StatisticId variance, double elements) noexcept {
  entries_[static_cast<std::size_t>(variance)].correction =
      elements < 2 ? 1.0F : static_cast<float>(elements / (elements - 1));
}

void StatisticsBlock::publish() noexcept {
  finite_ = true;
  for (const Entry& entry : entries_) {
    for (std::size_t c = 0; c < entry.channels; ++c) {
      const float value = aligned_[entry.aligned_offset + c] * entry.correction;
      concatenated_[entry.offset + c] = value;
      finite_ = finite_ && std::isfinite(value);
    }
  }
}

void StatisticsBlock::load(std::span<const float> running) noexcept {
  for (const Entry& entry : entries_) {
    std::copy_n(running.data() + entry.offset, entry.channels,
                aligned_.data() + entry.aligned_offset);
  }
}

}  // namespace lockstep::cpu
