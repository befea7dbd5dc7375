#pragma once

#include "vec8_rows.hpp"

#include <cstddef>

/// Sums over the rows of a matrix in two kernels: thread blocks sum a subset of rows of some vec8
/// columns, then a few threads add up the blocks' sums for each channel. The order of additions
/// depends on the extent and the class of GPU alone. Kernels with more sums have two resident
/// blocks instead of three, so a last round fills half of the GPU. Its blocks share memory with
/// fewer others: ChunkGradients moves 3.75 TB/s on an H200, kernels without rounds 3.7.
namespace lockstep::gpu {

/// Partition of the rows. Block `b` has the vec8 columns of group b % groups and the rows of chunk
/// b / groups: lane l of chunk c has the rows c * lanes + l + k * stride(). Each chunk has rows.
struct RowReduction {
  std::int64_t rows = 0;
  std::int64_t padded = 0;
  std::int64_t chunks = 0;
  std::int64_t groups = 0;  ///< of `columns` vec8 columns
  int columns = 0;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE int lanes() const { return threads_per_block / columns; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t stride() const { return chunks * lanes(); }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t chunk_of(std::int64_t block) const {
    return block / groups;
  }
  /// First channel of a block's vec8 column; the last group may have columns beyond the channels.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t channel_of(std::int64_t block, int column) const {
    return (block % groups * columns + column) * vec8_size;
  }
  /// Calls use(row, load(row)) for a lane's rows, the last first: the kernel that wrote them ended
  /// there, so the cache has them.
  template <int depth, typename Load, typename Use>
  LOCKSTEP_HOST_DEVICE void for_rows_of(std::int64_t block, int lane, const Load& load,
                                        const Use& use) const {
    const std::int64_t first = chunk_of(block) * lanes() + lane;
    const std::int64_t count = rows_below(rows, first, stride());
    for_rows<depth>(first + (count - 1) * stride(), -stride(), count, load, use);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t rows_of(std::int64_t chunk) const {
    const Division rounds = divide(rows, stride());
    const std::int64_t rest = rounds.rest - chunk * lanes();
    return rounds.quotient * lanes() + (rest < 0 ? 0 : rest < lanes() ? rest : lanes());
  }
  [[nodiscard]] ThreadBlocks blocks() const {
    return {.count = chunks * groups, .columns = columns};
  }
  /// Number of partial sums of all chunks, (chunks, padded).
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t partials() const { return chunks * padded; }
};
[[nodiscard]] inline RowReduction row_reduction(const Matrix& extent) {
  constexpr int max_columns = 16;            // 256 bytes of a row in 16 bits
  constexpr std::int64_t rows_per_lane = 4;  // at least
  const std::int64_t columns = extent.padded / vec8_size;
  RowReduction result{
      .rows = extent.rows, .padded = extent.padded, .chunks = 1, .groups = 1, .columns = 1};
  while (result.columns < max_columns && result.columns < columns) result.columns *= 2;
  result.groups = ceil_div(columns, std::int64_t{result.columns});
  result.chunks = std::min(ceil_div(extent.rows, result.lanes() * rows_per_lane),
                           std::max(blocks_of_sums(extent.gpu) / result.groups, std::int64_t{1}));
  return result;
}

/// Sums of `kinds` quantities for each of eight channels.
template <int kinds>
struct Vec8Sums {
  Vec8 sums[kinds];
  LOCKSTEP_HOST_DEVICE void clear() {
    for (int k = 0; k < kinds; ++k) sums[k] = filled<vec8_size>(0);
  }
  LOCKSTEP_HOST_DEVICE void merge(const Vec8Sums& other) {
    for (int k = 0; k < kinds; ++k) {
      for (int i = 0; i < vec8_size; ++i) sums[k][i] += other.sums[k][i];
    }
  }
};

/// Writes a block's sums to `partials` (kinds, chunks, padded).
template <int kinds>
LOCKSTEP_HOST_DEVICE void store_partials(const RowReduction& reduction, std::int64_t block,
                                         std::int64_t channel, const Vec8Sums<kinds>& sums,
                                         float* partials) {
  if (channel >= reduction.padded) return;
  float* to = partials + reduction.chunk_of(block) * reduction.padded + channel;
  for (int k = 0; k < kinds; ++k, to += reduction.partials()) store<vec8_size>(to, sums.sums[k]);
}

/// The second kernel: a block has `columns` channels, and its lanes divide the partial sums.
inline constexpr int channels_per_block = 4;
inline constexpr int combining_lanes = threads_per_block / channels_per_block;
[[nodiscard]] inline ThreadBlocks combining_blocks(const RowReduction& reduction) {
  return {.count = ceil_div(reduction.padded, std::int64_t{channels_per_block}),
          .columns = channels_per_block};
}

/// Adds up partial sums of `kinds` quantities and passes them to finish(channel, sums).
template <int kinds>
struct PartialSums {
  struct Partial {
    double sums[kinds];
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      for (int k = 0; k < kinds; ++k) sums[k] += other.sums[k];
    }
  };
  const float* partials;  ///< (kinds, chunks, padded)
  std::int64_t chunks;
  std::int64_t padded;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t channel, int lane) const {
    Partial result{};
    if (channel >= padded) return result;
    for_rows<8>(
        lane, combining_lanes, rows_below(chunks, lane, combining_lanes),
        [&](std::int64_t chunk) {
          Floats<kinds> loaded;
          for (int k = 0; k < kinds; ++k) {
            loaded[k] = partials[(k * chunks + chunk) * padded + channel];
          }
          return loaded;
        },
        [&](std::int64_t, const Floats<kinds>& loaded) {
          for (int k = 0; k < kinds; ++k) result.sums[k] += static_cast<double>(loaded[k]);
        });
    return result;
  }
};

}  // namespace lockstep::gpu
