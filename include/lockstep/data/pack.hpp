#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack_source.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct PackOptions {
  std::string directory;               ///< created if missing
  std::optional<std::int64_t> shards;  ///< training shards; test shards in proportion
  double shard_mb = 256;               ///< MiB per shard, if `shards` is not given
  std::uint64_t seed = 0;              ///< of the sample order
  bool overwrite = false;              ///< replace existing shards
  /// Called after each sample this rank writes, with counts of this rank's share; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

struct PackResult {
  std::int64_t train_samples = 0;
  std::int64_t val_samples = 0;
  std::int64_t train_shards = 0;
  std::int64_t val_shards = 0;
  std::int64_t classes = 0;
  std::uint64_t bytes = 0;  ///< of all shard files
  std::vector<float> mean;  ///< (C,), of the training pixels scaled to [0, 1]
  std::vector<float> std;
};

/// Writes a source as shards. Collective: rank i mod size writes shard i of all; the bytes do not
/// depend on the number of ranks. Publishes shards after all are written; needs a few MiB of memory
/// beyond the source's. All ranks return or all throw the same Error: usage if the directory
/// already has shards, bad_input or no_input for the source, cannot_write.
[[nodiscard]] PackResult pack(PackSource& source, const PackOptions& options, Communicator& comm);

/// "train-00003-of-00016.h5"
[[nodiscard]] std::string packed_shard_name(SourcePart part, std::int64_t shard,
                                            std::int64_t shards);

/// Number of shards for `bytes` in `samples` samples, about `shard_mb` MiB each; at least one.
[[nodiscard]] std::int64_t shards_for(std::uint64_t bytes, std::int64_t samples, double shard_mb);

}  // namespace lockstep
