#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/graph/graph.hpp"

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
  std::string directory;  ///< "synthetic" for the synthetic one
  std::string split;
  std::int64_t samples = 0;
  /// height = width = 0 where images are encoded (sizes vary; channels = 0 where the files say
  /// nothing: both 1 and 3 can be decoded)
  ImageShape image;
  bool encoded = false;  ///< /encoded and /offsets instead of /images
  std::int64_t classes = 0;
  std::vector<float> mean = {};  ///< (C,), of pixels scaled to [0, 1]
  std::vector<float> std = {};
  bool states_mean = false;  ///< the files do; else `mean` is a default
  bool states_std = false;
  std::vector<std::string> class_names = {};  ///< empty: unknown
  std::uint32_t identity =
      0;  ///< CRC-32C over shard names, counts, shapes, labels' and images' checksums
  std::vector<std::string> notes = {};  ///< for the user: defaults taken, slower layouts
};

/// One sample in raw form. `bytes` are H*W*C pixels (uint8, HWC) or a JPEG file.
struct RawSample {
  std::vector<std::byte> bytes;  ///< reused between reads
  std::int64_t label = 0;
};

/// Random access to a split's samples. Reads are thread-safe and check the sample's CRC; a fault is
/// an Error(bad_input or no_input) that names file and sample.
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual const DatasetInfo& info() const noexcept = 0;
  virtual void read(std::int64_t index, RawSample& sample) const = 0;
  /// Where a sample comes from, for messages: "data/train-00000-of-00001.h5: sample 3".
  [[nodiscard]] virtual std::string describe(std::int64_t index) const {
    return info().directory + ": sample " + std::to_string(index);
  }
  /// The files it reads; none where it reads none.
  [[nodiscard]] virtual std::vector<ShardToCopy> shards_to_copy() const;
  /// From now on each shard is read from its copy once that is ready, shard i from copy first + i.
  /// Before the first read.
  virtual void read_copies(const std::shared_ptr<const ShardCopies>& copies, std::size_t first);
};

/// Opens split `split` ("train", "val") of a directory of shards. Collective: shard i is validated
/// by rank i mod size, and path, offset, shape, label range are gathered; all ranks return or all
/// throw the same Error. After that a rank opens only files it reads, with a bounded number of
/// descriptors. No shard of that split: Error(no_input); `has_split` asks first.
[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const std::string& directory,
                                                    const std::string& split, Communicator& comm);

/// Whether a directory holds shards of that split. Not collective.
[[nodiscard]] bool has_split(const std::string& directory, const std::string& split);

struct SyntheticOptions {
  std::int64_t samples = 1024;
  ImageShape image{.channels = 3, .height = 224, .width = 224};
  std::int64_t classes = 1000;
  std::uint64_t seed = 0;
};
/// Random pixels with a weak class-dependent pattern, a pure function of (seed, index).
[[nodiscard]] std::unique_ptr<Dataset> make_synthetic_dataset(const SyntheticOptions& options);

}  // namespace lockstep
