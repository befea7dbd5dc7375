#pragma once

#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

namespace tensor_sums {

/// Range of a tensor's blocks.
struct BlockRange {
  std::uint32_t begin;
  std::uint32_t end;
};

/// The workspace: one sum per block, and one range per tensor.
struct Workspace {
  double* block_sums;
  BlockRange* ranges;
  Workspace(void* memory, std::size_t blocks)
      : block_sums(static_cast<double*>(memory)),
        ranges(reinterpret_cast<BlockRange*>(block_sums + blocks)) {}
};

struct ClearRanges {
  BlockRange* ranges;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t tensor) const { ranges[tensor] = {0, 0}; }
};

/// One item per block, whose values are values_of(block). A tensor's first and last block write its
/// range.
template <typename Values>
struct SumBlock {
  Values values_of;
  std::int64_t blocks;
  const std::uint32_t* tensor_of_block;
  double* block_sums;
  BlockRange* ranges;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t block) const {
    constexpr int size = static_cast<int>(arena_block);
    const Floats<size> values = values_of(block);
    double sum = 0;
    for (int i = 0; i < size; ++i) {
      const auto value = static_cast<double>(values[i]);
      sum += value * value;
    }
    block_sums[block] = sum;
    const std::uint32_t tensor = tensor_of_block[block];
    if (block == 0 || tensor_of_block[block - 1] != tensor) {
      ranges[tensor].begin = static_cast<std::uint32_t>(block);
    }
    if (block + 1 == blocks || tensor_of_block[block + 1] != tensor) {
      ranges[tensor].end = static_cast<std::uint32_t>(block + 1);
    }
  }
};

/// One thread block per tensor.
struct SumTensor {
  struct Partial {
    double sum;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) { sum += other.sum; }
  };
  const double* block_sums;
  const BlockRange* ranges;
  double* sums;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t tensor, int, int lane) const {
    constexpr int depth = 8;  // concurrent loads
    const std::int64_t end = ranges[tensor].end;
    std::int64_t block = std::int64_t{ranges[tensor].begin} + lane;
    double lane_sums[depth] = {};
    for (; block + (depth - 1) * threads_per_block < end; block += depth * threads_per_block) {
      for (int i = 0; i < depth; ++i) lane_sums[i] += block_sums[block + i * threads_per_block];
    }
    for (; block < end; block += threads_per_block) lane_sums[0] += block_sums[block];
    Partial result{0};
    for (int i = 0; i < depth; ++i) result.sum += lane_sums[i];
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t tensor, int, const Partial& total) const {
    sums[tensor] = total.sum;
  }
};

}  // namespace tensor_sums

/// Sums of squares, in fp64, of each tensor's values. values_of(block) returns block `block` as
/// Floats<arena_block>; the rest as for squared_norms().
template <typename Values>
void sum_squares(Stream stream, const Values& values_of, std::size_t blocks,
                 const std::uint32_t* tensor_of_block, std::size_t tensors, double* sums,
                 void* workspace) {
  using namespace tensor_sums;
  const Workspace memory(workspace, blocks);
  const auto items = static_cast<std::int64_t>(blocks);
  const auto tensor_items = static_cast<std::int64_t>(tensors);
  launch(stream, tensor_items, ClearRanges{memory.ranges});
  launch(stream, items,
         SumBlock<Values>{values_of, items, tensor_of_block, memory.block_sums, memory.ranges});
  launch_blocks(stream, {.count = tensor_items, .columns = 1},
                SumTensor{memory.block_sums, memory.ranges, sums});
}

}  // namespace lockstep::gpu
