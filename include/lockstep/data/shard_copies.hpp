#pragma once

#include "lockstep/data/shard_file.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// A validated shard, as input for copying.
struct ShardToCopy {
  std::string directory;
  std::string name;         ///< file name within `directory`
  std::uint64_t bytes = 0;  ///< file size
  ShardHeader header;
  std::uint32_t checksum = 0;  ///< ShardContents::checksum
};

/// Copies of shards, made while the originals are read. Thread-safe.
class ShardCopies {
 public:
  virtual ~ShardCopies() = default;
  /// Whether the copy is complete and verified. Cheap, since every read calls it.
  [[nodiscard]] virtual bool ready(std::size_t shard) const noexcept = 0;
  [[nodiscard]] virtual std::string path(std::size_t shard) const = 0;
};

}  // namespace lockstep
