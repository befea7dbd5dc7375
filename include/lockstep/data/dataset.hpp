#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/image_shape.hpp"
#include "lockstep/data/class_names.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

class ShardCopies;
struct ShardToCopy;

/// What all ranks agree on about one split of a data set.
struct DatasetInfo {
  std::string directory;  ///< "synthetic" for synthetic data
  std::string split;
  std::int64_t samples = 0;
  /// Encoded images: height = width = 0 (sizes vary), and channels = 0 if the files do not specify
  /// them (they decode to 1 or 3).
  ImageShape image;
  bool encoded = false;  ///< /encoded and /offsets instead of /images
  /// Of encoded images, in pixels: larger ones were resized to it before. 0: none were, or unknown.
  std::int64_t short_side = 0;
  std::int64_t classes = 0;
  std::vector<float> mean = {};  ///< (C,), for pixels scaled to [0, 1]
  std::vector<float> std = {};
  bool states_mean = false;  ///< false: `mean` is a default, not from the files
  bool states_std = false;
  std::vector<std::string> class_names = {};  ///< empty: unknown
  /// Labels without a sample; none are listed of more than most_counted_classes.
  std::vector<std::int64_t> empty_classes = {};
  std::uint32_t identity =
      0;  ///< CRC-32C over shard names, sample counts, shapes and ShardContents::checksum
  std::vector<std::string> notes = {};  ///< messages for the user: defaults used, slower layouts
};

/// One sample in raw form. `bytes` are H*W*C pixels (uint8, HWC) or a JPEG file.
struct RawSample {
  std::vector<std::byte> bytes;  ///< reused between reads
  std::int64_t label = 0;
};

/// Classes in the place of a data set's own.
struct RenumberedClasses {
  ClassNumbering numbering;
  std::vector<std::string> class_names;  ///< by the new numbers
  std::uint32_t identity = 0;            ///< DatasetInfo::identity
};

/// Random access to a split's samples. Reads are thread-safe and check the sample's CRC; failures
/// throw Error(bad_input or no_input) that names file and sample.
class Dataset : public std::enable_shared_from_this<Dataset> {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual const DatasetInfo& info() const noexcept = 0;
  virtual void read(std::int64_t index, RawSample& sample) const = 0;
  /// Origin of a sample, for messages: "data/train-00000-of-00001.h5: sample 3".
  [[nodiscard]] virtual std::string describe(std::int64_t index) const {
    return info().directory + ": sample " + std::to_string(index);
  }
  /// From then on, the same samples with numbering[label] for each label, after the files'
  /// checksums are checked. For data with class names. Call once, before the first read.
  virtual void renumber(RenumberedClasses classes);
  /// The shard files of the data set; empty if it reads no files.
  [[nodiscard]] virtual std::vector<ShardToCopy> shards_to_copy() const;
  /// Reads shard i from copy first + i as soon as that copy is ready. Call before the first read.
  virtual void read_copies(const std::shared_ptr<const ShardCopies>& copies, std::size_t first);
};

/// Opens split `split` ("train", "val") of a directory of shards. Collective: rank i mod size
/// validates shard i, and headers and label ranges are all-gathered; all ranks return or all throw
/// the same Error. Afterwards a rank opens only files it reads, with a bounded number of
/// descriptors. Error(no_input) if the split has no shards; check with `has_split` first.
[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const std::string& directory,
                                                    const std::string& split, Communicator& comm);

/// Whether a directory holds shards of that split. Not collective.
[[nodiscard]] bool has_split(const std::string& directory, const std::string& split);

/// The identity that a split would have if its files held the renumbered labels. Reads labels and
/// checksums again. Collective.
[[nodiscard]] std::uint32_t renumbered_identity(const DatasetInfo& info,
                                                const ClassNumbering& numbering,
                                                Communicator& comm);

struct SyntheticOptions {
  std::int64_t samples = 1024;
  ImageShape image{.channels = 3, .height = 224, .width = 224};
  std::int64_t classes = 1000;
  std::uint64_t seed = 0;
};
/// Random pixels with a weak class-dependent pattern, a pure function of (seed, index).
[[nodiscard]] std::unique_ptr<Dataset> make_synthetic_dataset(const SyntheticOptions& options);

}  // namespace lockstep
