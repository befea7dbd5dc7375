#pragma once

#include "../batch_statistics.hpp"
#include "lockstep/core/aligned_buffer.hpp"

#include <cstdint>

namespace lockstep::cpu {

/// A program's batch statistics, and the block in which its norms read and write them.
struct StatisticsBlock {
  StatisticsBlock(const Graph& graph, std::int64_t batch_size)
      : statistics(graph, batch_size), block(statistics.block_size()) {}
  [[nodiscard]] float* of(StatisticId id) { return block.data() + statistics.offset_of(id); }

  BatchStatistics statistics;
  AlignedBuffer<float> block;
};

}  // namespace lockstep::cpu
