#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Cache of a shard's labels, checksums or offsets, read on demand in blocks of some hundreds, so a
/// sample usually costs one file access instead of one per column. Thread-safe.
class ColumnBlocks final {
 public:
  explicit ColumnBlocks(std::int64_t rows)
      : rows_(rows), blocks_(static_cast<std::size_t>((rows + size - 1) / size)) {}
  ColumnBlocks(const ColumnBlocks&) = delete;
  ColumnBlocks& operator=(const ColumnBlocks&) = delete;
  ~ColumnBlocks() {
    for (const auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
  }

  /// Calls `read(first, values)` to fill a missing block; passes its exceptions on.
  template <typename Read>
  [[nodiscard]] std::int64_t at(std::int64_t row, Read&& read) {
    std::atomic<const std::int64_t*>& block = blocks_[static_cast<std::size_t>(row / size)];
    const std::int64_t* values = block.load(std::memory_order_acquire);
    if (values == nullptr) {
      const std::int64_t first = row / size * size;
      const auto count = static_cast<std::size_t>(std::min(size, rows_ - first));
      std::unique_ptr<std::int64_t[]> fresh(new std::int64_t[count]);
      read(first, std::span(fresh.get(), count));
      // If two threads read the same block, the first one stores it.
      if (block.compare_exchange_strong(values, fresh.get(), std::memory_order_acq_rel)) {
        values = fresh.release();
      }
    }
    return values[row % size];
  }

 private:
  static constexpr std::int64_t size = 512;
  std::int64_t rows_;
  std::vector<std::atomic<const std::int64_t*>> blocks_;
};

}  // namespace lockstep
