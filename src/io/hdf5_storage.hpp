#pragma once

#include "hdf5_input.hpp"
#include "hdf5_node.hpp"
#include "lockstep/io/hdf5_reader.hpp"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::h5 {

/// A chunk as it is stored.
struct Chunk {
  std::uint64_t number = 0;  ///< in row-major order of the chunks
  std::uint64_t address = undefined;
  std::uint64_t bytes = 0;
  std::uint32_t skipped_filters = 0;  ///< a bit each
};

/// Chunks of equal extent that cover a dataset.
struct ChunkGrid {
  std::vector<std::uint64_t> extent;  ///< of a chunk, elements
  std::vector<std::uint64_t> count;   ///< along each axis
  /// The same of the largest shape that the dataset may grow to; `undefined` without limit.
  std::vector<std::uint64_t> max_count;
  std::uint64_t chunks = 1;       ///< product of `count`
  std::uint64_t chunk_bytes = 0;  ///< without filters
};

/// How the chunks of a dataset are found.
struct ChunkIndex {
  /// As layout version 4 numbers them; tree_1 is of version 3.
  enum class Kind { tree_1 = 0, single, implicit, fixed_array, extensible_array, tree_2 };
  Kind kind = Kind::tree_1;
  std::uint64_t address = undefined;
  bool is_filtered = false;
  Chunk single;
};

/// Chunks that were written, in the order of their numbers. Error(bad_input).
[[nodiscard]] std::vector<Chunk> read_chunks(const Node& dataset, const ChunkIndex& index,
                                             const ChunkGrid& grid);

/// Where and how a dataset's values are stored. Thread-safe.
class Storage final {
 public:
  /// Reads the header's messages. Error(bad_input) for what is not read.
  explicit Storage(const Node& dataset);

  [[nodiscard]] const DatasetInfo& info() const noexcept { return info_; }
  [[nodiscard]] const ChunkGrid& grid() const noexcept { return grid_; }
  [[nodiscard]] std::span<const std::byte> compact() const noexcept { return compact_; }
  /// Error(bad_input) unless the file can hold the values.
  void require_values() const;
  void keep(std::uint64_t bytes) const;
  /// A chunk without filters. The last one is kept, and others up to keep(). Error(bad_input) if it
  /// was never written.
  [[nodiscard]] std::shared_ptr<const Bytes> chunk(std::uint64_t number) const;

 private:
  void read_filters();
  void read_layout();
  void read_chunked_layout(Cursor cursor, std::uint8_t version);
  void set_grid(std::vector<std::uint64_t> extent);
  [[nodiscard]] const Chunk& find_chunk(std::uint64_t number) const;

  const Node& node_;
  DatasetInfo info_;
  std::vector<std::uint64_t> max_dims_;
  std::span<const std::byte> compact_;
  std::vector<std::uint16_t> filters_;  ///< by number, in the order of writing
  ChunkGrid grid_;
  ChunkIndex index_;

  mutable std::mutex mutex_;
  mutable std::optional<std::vector<Chunk>> chunks_;
  struct Decoded {
    std::uint64_t number;
    std::shared_ptr<const Bytes> values;
  };
  mutable std::deque<Decoded> decoded_;  ///< the last one at the end
  mutable std::uint64_t kept_bytes_ = 0;
};

}  // namespace lockstep::h5
