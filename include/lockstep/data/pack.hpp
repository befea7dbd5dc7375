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
  std::string directory;               ///< created where it is not there
  std::optional<std::int64_t> shards;  ///< of the training part; the test part gets its share
  double shard_mb = 256;               ///< MiB, where `shards` is not given
  std::uint64_t seed = 0;              ///< of the order
  bool overwrite = false;              ///< replace the shards that are there
  /// Called on rank 0 after each sample it wrote: its own share done, and in all.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

struct PackResult {
  std::int64_t train_samples = 0;
  std::int64_t val_samples = 0;
  std::int64_t train_shards = 0;
  std::int64_t val_shards = 0;
  std::int64_t classes = 0;
  std::uint64_t bytes = 0;  ///< of all shard files
  std::vector<float> mean;  ///< (C,), of the training part's pixels scaled to [0, 1]
  std::vector<float> std;
};

/// Writes a source as shards. Collective: shard i of all is written by rank i mod size; the bytes
/// do not depend on the number of ranks. Nothing is published before all is written; memory is a
/// few MiB beyond the source's. All ranks return or all throw the same Error: usage where the
/// directory holds shards already, bad_input or no_input for the source, cannot_write.
[[nodiscard]] PackResult pack(PackSource& source, const PackOptions& options, Communicator& comm);

/// "train-00003-of-00016.h5"
[[nodiscard]] std::string packed_shard_name(SourcePart part, std::int64_t shard,
                                            std::int64_t shards);

/// Shards for `bytes` in `samples` samples: as many as keep each at about `shard_mb`, at least one.
[[nodiscard]] std::int64_t shards_for(std::uint64_t bytes, std::int64_t samples, double shard_mb);

}  // namespace lockstep
