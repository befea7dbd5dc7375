#pragma once

#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

#include <algorithm>
#include <cstdint>

/// Matrices of (rows, padded) values, processed in groups of eight values (one mask byte).
namespace lockstep::gpu {

inline constexpr int vec8_size = 8;
using Vec8 = Floats<vec8_size>;

/// Eight values as stored.
template <typename T>
struct RawVec8 {
  Packed128 parts[vec8_size / packed_size<T>];
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Vec8 floats() const {
    Vec8 result;
    for (int p = 0; p < vec8_size / packed_size<T>; ++p) {
      const auto part = unpack<T>(parts[p]);
      for (int i = 0; i < packed_size<T>; ++i) result[p * packed_size<T> + i] = part[i];
    }
    return result;
  }
};
template <typename T>
LOCKSTEP_HOST_DEVICE RawVec8<T> read_vec8(const T* from) {
  RawVec8<T> result;
  for (int p = 0; p < vec8_size / packed_size<T>; ++p) {
    result.parts[p] = load128(from + p * packed_size<T>);
  }
  return result;
}
template <typename T>
LOCKSTEP_HOST_DEVICE RawVec8<T> packed(const Vec8& values) {
  RawVec8<T> result;
  for (int p = 0; p < vec8_size / packed_size<T>; ++p) {
    Floats<packed_size<T>> part;
    for (int i = 0; i < packed_size<T>; ++i) part[i] = values[p * packed_size<T> + i];
    result.parts[p] = pack<T>(part);
  }
  return result;
}
template <typename T>
LOCKSTEP_HOST_DEVICE void write_vec8(T* to, const RawVec8<T>& values) {
  for (int p = 0; p < vec8_size / packed_size<T>; ++p) {
    store128(to + p * packed_size<T>, values.parts[p]);
  }
}

/// Calls use(row, load(row)) for `count` rows, first, first + stride and so on; a negative stride
/// goes backwards. Loads `depth` rows before it uses the first, so that their loads overlap.
template <int depth, typename Load, typename Use>
LOCKSTEP_HOST_DEVICE void for_rows(std::int64_t first, std::int64_t stride, std::int64_t count,
                                   const Load& load, const Use& use) {
  decltype(load(first)) loaded[depth];
  std::int64_t row = first;
  for (; count >= depth; count -= depth, row += depth * stride) {
    for (int i = 0; i < depth; ++i) loaded[i] = load(row + i * stride);
    for (int i = 0; i < depth; ++i) use(row + i * stride, loaded[i]);
  }
  if (count <= 0) return;
  for (int i = 0; i < depth - 1; ++i) loaded[i] = load(row + (i < count ? i : 0) * stride);
  for (int i = 0; i < depth - 1; ++i) {
    if (i < count) use(row + i * stride, loaded[i]);
  }
}
/// How many of the rows first, first + stride ... are below `end`.
LOCKSTEP_HOST_DEVICE inline std::int64_t rows_below(std::int64_t end, std::int64_t first,
                                                    std::int64_t stride) {
  return first < end
             ? static_cast<std::uint32_t>(end - first - 1) / static_cast<std::uint32_t>(stride) + 1
             : 0;
}

/// Work items that keep a thread on one vec8 column, so that it loads the per-channel values once.
/// An item is a column and `rows_each` rows. Items that run at the same time read adjacent rows, so
/// that a kernel reads memory front to back.
struct ColumnItems {
  std::int64_t chunks = 0;  ///< items of a column
  std::int64_t columns = 0;
  std::int64_t interleaved = 1;  ///< chunks
  std::int64_t rows_each = 1;
  [[nodiscard]] std::int64_t count() const { return chunks * columns; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t chunk(std::int64_t item) const {
    return static_cast<std::uint32_t>(item) / static_cast<std::uint32_t>(columns);
  }
  /// Calls use(row, load(row)) for the item's rows among the first `rows`.
  template <int depth, typename Load, typename Use>
  LOCKSTEP_HOST_DEVICE void for_rows_of(std::int64_t chunk, std::int64_t rows, const Load& load,
                                        const Use& use) const {
    const Division group = divide(chunk, interleaved);
    const std::int64_t first = group.quotient * interleaved * rows_each + group.rest;
    const std::int64_t there = rows_below(rows, first, interleaved);
    for_rows<depth>(first, interleaved, there < rows_each ? there : rows_each, load, use);
  }
};
[[nodiscard]] inline ColumnItems column_items(std::int64_t rows, std::int64_t columns) {
  // 4 to 16 rows per item: about `enough` items keep a large device busy.
  constexpr std::int64_t enough = std::int64_t{1} << 18;
  constexpr std::int64_t loaded_together = 4;
  ColumnItems items{.columns = columns};
  items.rows_each =
      loaded_together * std::clamp(ceil_div(rows * items.columns, enough * loaded_together),
                                   std::int64_t{1}, std::int64_t{4});
  items.interleaved =
      std::clamp(blocks_of_sums(GpuClass::sm_90) * threads_per_block / items.columns,
                 std::int64_t{1}, std::max(ceil_div(rows, items.rows_each), std::int64_t{1}));
  items.chunks = ceil_div(rows, items.interleaved * items.rows_each) * items.interleaved;
  return items;
}
[[nodiscard]] inline ColumnItems column_items(const Matrix& extent) {
  return column_items(extent.rows, extent.padded / vec8_size);
}

}  // namespace lockstep::gpu
