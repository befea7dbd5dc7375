#pragma once

#include "launch.hpp"
#include "update_kernels.hpp"
#include "vector_io.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

namespace tensor_sums {

/// Range of a tensor's blocks.
struct alignas(8) BlockRange {
  std::uint32_t begin;
  std::uint32_t end;
};

/// Most thread blocks that sum one tensor, each a split of its blocks.
inline constexpr int max_splits = 32;
/// Fewest blocks of a split, if a tensor has several.
inline constexpr std::int64_t min_blocks_per_split = 4096;

/// The workspace: one sum per block, one per tensor and split, and one range per tensor.
struct Workspace {
  double* block_sums;
  double* split_sums;
  BlockRange* ranges;
  Workspace(void* memory, std::size_t blocks, std::size_t tensors)
      : block_sums(static_cast<double*>(memory)),
        split_sums(block_sums + blocks),
        ranges(reinterpret_cast<BlockRange*>(split_sums + tensors * max_splits)) {}
  [[nodiscard]] static std::size_t bytes(std::size_t blocks, std::size_t tensors) {
    return blocks * sizeof(double) + tensors * (max_splits * sizeof(double) + sizeof(BlockRange));
  }
};

struct ClearRanges {
  enum : std::size_t { item_bytes = sizeof(BlockRange) };
  BlockRange* ranges;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t tensor) const { ranges[tensor] = {0, 0}; }
};

/// One item per block, whose values are values_of(block). A tensor's first and last block write its
/// range.
template <typename Values>
struct SumBlock {
  enum : std::size_t {
    item_bytes = Values::arenas_read * arena_block * sizeof(float) + sizeof(double)
  };
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

struct Sum {
  double sum;
  LOCKSTEP_HOST_DEVICE void merge(const Sum& other) { sum += other.sum; }
};

/// One thread block per tensor and split. How a tensor is split depends on its length alone; splits
/// without blocks sum nothing.
struct SumSplit {
  using Partial = Sum;
  const double* block_sums;
  const BlockRange* ranges;
  std::int64_t splits;  ///< enough for the longest tensor
  double* split_sums;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t item, int, int lane) const {
    constexpr int depth = 8;  // concurrent loads
    const Division place = divide(item, splits);
    const BlockRange range = ranges[place.quotient];
    const std::int64_t shared =
        ceil_div(std::int64_t{range.end - range.begin}, std::int64_t{max_splits});
    const std::int64_t each = shared < min_blocks_per_split ? min_blocks_per_split : shared;
    const std::int64_t begin = range.begin + place.rest * each;
    const std::int64_t end = begin + each < range.end ? begin + each : range.end;
    std::int64_t block = begin + lane;
    double lane_sums[depth] = {};
    for (; block + (depth - 1) * threads_per_block < end; block += depth * threads_per_block) {
      for (int i = 0; i < depth; ++i) lane_sums[i] += block_sums[block + i * threads_per_block];
    }
    for (; block < end; block += threads_per_block) lane_sums[0] += block_sums[block];
    Partial result{0};
    for (int i = 0; i < depth; ++i) result.sum += lane_sums[i];
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t item, int, const Partial& total) const {
    split_sums[item] = total.sum;
  }
};

/// Adds up the sums of each tensor's splits, with one lane per split.
struct SumTensor {
  using Partial = Sum;
  static constexpr int columns = threads_per_block / max_splits;
  const double* split_sums;
  std::int64_t splits;
  std::int64_t tensors;
  double* sums;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int column,
                                                     int lane) const {
    const std::int64_t tensor = block * columns + column;
    return {tensor < tensors && lane < splits ? split_sums[tensor * splits + lane] : 0.0};
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int column, const Partial& total) const {
    const std::int64_t tensor = block * columns + column;
    if (tensor < tensors) sums[tensor] = total.sum;
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
  const Workspace memory(workspace, blocks, tensors);
  const auto items = static_cast<std::int64_t>(blocks);
  const auto tensor_items = static_cast<std::int64_t>(tensors);
  launch(stream, tensor_items, ClearRanges{memory.ranges});
  launch(stream, items,
         SumBlock<Values>{values_of, items, tensor_of_block, memory.block_sums, memory.ranges});
  const std::int64_t splits =
      std::clamp(ceil_div(items, min_blocks_per_split), std::int64_t{1}, std::int64_t{max_splits});
  launch_blocks(stream, {.count = tensor_items * splits, .columns = 1},
                SumSplit{memory.block_sums, memory.ranges, splits, memory.split_sums});
  constexpr std::int64_t columns = SumTensor::columns;
  launch_blocks(stream, {.count = ceil_div(tensor_items, columns), .columns = SumTensor::columns},
                SumTensor{memory.split_sums, splits, tensor_items, sums});
}

}  // namespace lockstep::gpu
