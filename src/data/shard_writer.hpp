#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/data/pack_source.hpp"
#include "lockstep/io/atomic_file.hpp"

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
  std::int64_t short_side = 0;  ///< as DatasetInfo::short_side
};

/// A file without a name that vanishes with its owner, also if the process is killed.
class SpoolFile final {
 public:
  /// In the directory of `file`. Error(cannot_write).
  explicit SpoolFile(const FilePath& file);

  void append(std::span<const std::byte> bytes);                      ///< Error(cannot_write)
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;  ///< Error(internal)

 private:
  std::string path_;  ///< for messages
  Descriptor file_;
};

/// Writes one shard sample by sample with a few MiB of memory. A contiguous HDF5 dataset needs its
/// size when it is created, and samples may be skipped or converted, so the samples are collected
/// in a spool file first. finish_shard() adds the attributes later.
class ShardWriter final {
 public:
  /// Writes to `file`, which must outlive it.
  ShardWriter(const TemporaryFile& file, const SourceInfo& info);

  void append(const RawSample& sample);
  [[nodiscard]] std::int64_t samples() const noexcept {
    return static_cast<std::int64_t>(labels_.size());
  }
  /// Writes and closes the file. Call with at least one sample.
  void close();

 private:
  void flush();

  const TemporaryFile& file_;
  ImageShape image_;
  bool encoded_;
  SpoolFile spool_;
  std::vector<std::byte> buffer_;
  std::vector<std::uint64_t> offsets_{0};  ///< of the samples' bytes; has one more than samples
  std::vector<std::int64_t> labels_;
  std::vector<std::uint32_t> checksums_;
};

/// Whether a file is a shard as ShardWriter::close() leaves it: but for the values, the same bytes.
/// The HDF5 library opens no other file, since it is not safe with files of strangers.
[[nodiscard]] bool is_unfinished_shard(const Descriptor& file);

/// Writes the attributes into a closed shard. Error(cannot_write); Error(bad_input) unless
/// is_unfinished_shard().
void finish_shard(const TemporaryFile& shard, const ShardAttributes& attributes);

}  // namespace lockstep
