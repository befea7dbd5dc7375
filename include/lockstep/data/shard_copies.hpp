#pragma once

#include "lockstep/data/shard_file.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// A shard as it was validated, for whoever copies it.
struct ShardToCopy {
  std::string directory;
  std::string name;         ///< in the directory
  std::uint64_t bytes = 0;  ///< of the file
  ShardHeader header;
  std::uint32_t checksum = 0;  ///< ShardContents::checksum
};

/// Copies of some shards, which come to be there while the shards are read. Thread-safe.
class ShardCopies {
 public:
  virtual ~ShardCopies() = default;
  /// Whether the copy is whole and verified. Cheap: asked at every read.
  [[nodiscard]] virtual bool ready(std::size_t shard) const noexcept = 0;
  [[nodiscard]] virtual std::string path(std::size_t shard) const = 0;
};

}  // namespace lockstep
