#pragma once

#include "lockstep/data/dataset.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// "train-00003-of-00016.h5": the split's name, the shard's number and how many there are.
struct ShardName {
  std::string split;
  std::int64_t number = 0;
  std::int64_t count = 0;
  friend bool operator==(const ShardName&, const ShardName&) = default;
};
/// nullopt where the file name is no shard's.
[[nodiscard]] std::optional<ShardName> parse_shard_name(std::string_view file_name);

/// File names of a split, in order, all of them there. Error(no_input) where the directory cannot
/// be read, holds none, or one of the count is missing (named); Error(bad_input) where the names
/// contradict each other.
[[nodiscard]] std::vector<std::string> list_shards(const std::string& directory,
                                                   const std::string& split);

/// Where a dataset's rows lie.
struct ShardColumn {
  std::optional<std::uint64_t> offset;  ///< of contiguous values; else they are read by the library
  std::int32_t element_size = 0;
  bool is_signed = false;
  bool little_endian = true;
};

/// What a rank must know to read a shard it has not validated itself.
struct ShardHeader {
  std::int64_t samples = 0;
  ImageShape image;  ///< height = width = 0 where encoded; channels = 0: not known
  bool encoded = false;
  std::int64_t encoded_bytes = 0;
  ShardColumn images;  ///< /images or /encoded
  ShardColumn labels;
  std::optional<ShardColumn> offsets;    ///< (samples + 1,), where encoded
  std::optional<ShardColumn> checksums;  ///< (samples,)
  bool contiguous = true;                ///< all of the above
  std::optional<std::int64_t> classes;
  std::vector<float> mean;  ///< empty: not given
  std::vector<float> std;
  std::vector<std::string> class_names;
};

/// What reading all labels, offsets and checksums adds.
struct ShardContents {
  std::int64_t smallest_label = 0;  ///< both 0 where there are no samples
  std::int64_t largest_label = 0;
  std::uint32_t checksum = 0;  ///< CRC-32C over labels, offsets and the samples' checksums
};

/// One shard, open for reading; all of it is const and thread-safe. Of a shard, which may be far
/// larger than memory, the header is held, and the labels, offsets and checksums around samples
/// that were read.
class ShardFile final {
 public:
  /// Reads and validates the header with HDF5. Error(no_input) where absent or unreadable,
  /// Error(bad_input) with what was expected and found.
  explicit ShardFile(const std::string& path);
  /// Trusts a header made elsewhere, so that HDF5 is not needed where all is contiguous. The file's
  /// size is still checked.
  ShardFile(const std::string& path, ShardHeader header);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  [[nodiscard]] const ShardHeader& header() const noexcept;
  /// Reads all labels, offsets and checksums in pieces: labels in [0, classes), offsets that rise
  /// and end in the file.
  [[nodiscard]] ShardContents scan() const;
  /// Checks the checksum, if there is one. index in [0, samples).
  void read(std::int64_t index, RawSample& sample) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Reads every sample of one shard, whatever its name, and validates all there is to validate,
/// decoding JPEG files too. Throws what ShardFile throws.
ShardHeader verify_shard(const std::string& path);

/// The header as text, and back, to be sent to other ranks.
[[nodiscard]] std::string to_text(const ShardHeader& header);
[[nodiscard]] ShardHeader shard_header_from_text(const std::string& text);

}  // namespace lockstep
