#pragma once

#include "lockstep/data/pack_source.hpp"
#include "lockstep/io/hdf5.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Data set attributes, stored in every shard.
struct ShardAttributes {
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  std::vector<float> mean;
  std::vector<float> std;
};

/// Writes one shard row by row with a few MiB of memory. finish_shard() adds the attributes later.
class ShardWriter final {
 public:
  /// `sizes`: size of each sample in bytes, in order.
  ShardWriter(std::string path, const SourceInfo& info, std::span<const std::uint64_t> sizes);

  void append(const RawSample& sample);
  /// Writes labels and checksums, and closes the file.
  void close();

 private:
  void flush();

  std::string path_;
  h5::File file_;
  h5::Dataset images_;
  std::vector<std::uint64_t> sizes_;
  std::size_t row_bytes_;  ///< row of the outermost axis: an image, or one byte of JPEG data
  std::uint64_t rows_written_ = 0;
  std::vector<std::uint8_t> buffer_;
  std::vector<std::int64_t> labels_;
  std::vector<std::uint32_t> checksums_;
};

/// Writes the attributes into a closed shard. Error(cannot_write).
void finish_shard(const std::string& path, const ShardAttributes& attributes);

}  // namespace lockstep
