#pragma once

#include "lockstep/data/class_names.hpp"
#include "lockstep/data/dataset.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The directory in a data set's that exists while the set is packed.
inline constexpr const char* unfinished_packing = "unfinished";

/// "train-00003-of-00016.h5": split, shard number and shard count.
struct ShardName {
  std::string split;
  std::int64_t number = 0;
  std::int64_t count = 0;
  friend bool operator==(const ShardName&, const ShardName&) = default;
};
/// nullopt if the file name is not a shard name.
[[nodiscard]] std::optional<ShardName> parse_shard_name(std::string_view file_name);

/// All shard file names of a split, in order. Error(no_input) if the directory is unreadable, has
/// no shards or lacks one (the text names it); Error(bad_input) if the names contradict each other.
[[nodiscard]] std::vector<std::string> list_shards(const std::string& directory,
                                                   const std::string& split);

/// Storage of an HDF5 dataset's rows.
struct ShardColumn {
  std::optional<std::uint64_t> offset;  ///< file offset if contiguous; nullopt: read by HDF5
  std::int32_t element_size = 0;
  bool is_signed = false;
  bool little_endian = true;
};

/// Everything a rank needs to read a shard that another rank has validated.
struct ShardHeader {
  std::int64_t samples = 0;
  ImageShape image;  ///< height = width = 0 if encoded; channels = 0: unknown
  bool encoded = false;
  std::int64_t encoded_bytes = 0;
  ShardColumn images;  ///< /images or /encoded
  ShardColumn labels;
  std::optional<ShardColumn> offsets;    ///< (samples + 1,), if encoded
  std::optional<ShardColumn> checksums;  ///< (samples,)
  bool contiguous = true;                ///< all columns above
  std::optional<std::int64_t> classes;
  std::vector<float> mean;  ///< empty: not given
  std::vector<float> std;
  std::vector<std::string> class_names;
  std::int64_t short_side = 0;  ///< as DatasetInfo::short_side
};

/// What ShardFile::scan() finds in labels, offsets and checksums.
struct ShardContents {
  std::int64_t smallest_label = 0;  ///< both labels are 0 without samples
  std::int64_t largest_label = 0;
  std::uint32_t checksum = 0;  ///< CRC-32C over labels, offsets and sample checksums
  /// Whether a sample has this label, for labels below most_counted_classes.
  std::vector<bool> has_samples = {};
};
/// Data sets of more classes are not searched for classes without samples.
inline constexpr std::int64_t most_counted_classes = std::int64_t{1} << 16;

/// One shard, open for reading; const and thread-safe. A shard may be far larger than memory: keeps
/// only the header, and blocks of labels, offsets and checksums around samples already read.
class ShardFile final {
 public:
  /// Reads and validates the header with HDF5. Error(no_input) if absent or unreadable;
  /// Error(bad_input) states what was expected and found.
  explicit ShardFile(const std::string& path);
  /// Trusts a header validated elsewhere, so contiguous shards need no HDF5. Still checks the file
  /// size.
  ShardFile(const std::string& path, ShardHeader header);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  [[nodiscard]] const ShardHeader& header() const noexcept;
  /// Reads all labels, offsets and checksums in pieces. Checks that labels are in [0, classes) and
  /// that offsets increase and end within the file. With a numbering, `checksum` is that of the
  /// shard with its labels stored so.
  /// Keeps more decoded chunks, for samples that are read in order.
  void keep_chunks() const;
  [[nodiscard]] ShardContents scan(const ClassNumbering& numbering = {}) const;
  /// Checks the sample's checksum, if present. index in [0, samples).
  void read(std::int64_t index, RawSample& sample) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Reads and validates every sample of one shard, and decodes JPEG files. Accepts any file name.
/// Throws the same errors as ShardFile.
ShardHeader verify_shard(const std::string& path);

/// The header as text and back, to send it to other ranks.
[[nodiscard]] std::string to_text(const ShardHeader& header);
[[nodiscard]] ShardHeader shard_header_from_text(const std::string& text);

}  // namespace lockstep
