#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack_source.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Samples for the display of progress.
struct PackedSoFar {
  std::int64_t done = 0;    ///< of this rank's share
  std::int64_t share = 0;   ///< of this rank
  std::int64_t before = 0;  ///< packed by an earlier run
  std::int64_t all = 0;
};

struct PackOptions {
  std::string directory;               ///< created if missing
  std::optional<std::int64_t> shards;  ///< training shards; test shards in proportion
  double shard_mb = 256;               ///< MiB per shard, if `shards` is not given
  std::uint64_t seed = 0;              ///< of the sample order
  bool overwrite = false;              ///< replace existing shards, and start again
  OnBad on_bad = OnBad::stop;
  std::function<void(const PackedSoFar&)> progress;  ///< called after each sample; may be empty
};

struct PackResult {
  std::int64_t train_samples = 0;  ///< packed
  std::int64_t val_samples = 0;
  std::int64_t skipped = 0;  ///< left out and listed in skipped_list_name
  std::vector<std::pair<SourcePart, std::int64_t>> skipped_at = {};  ///< parts and indices of these
  std::int64_t re_encoded = 0;  ///< PNG and CMYK files packed as RGB JPEG files
  std::int64_t resized = 0;     ///< larger images packed as smaller JPEG files
  std::int64_t train_shards = 0;
  std::int64_t val_shards = 0;
  std::int64_t earlier_shards = 0;  ///< of both, packed by an earlier run that did not finish
  std::int64_t classes = 0;
  std::uint64_t bytes = 0;  ///< of all shard files
  std::vector<float> mean;  ///< (C,), of the training pixels scaled to [0, 1]
  std::vector<float> std;
  /// What else the input holds, by reason. Entries are files, and what else is no folder.
  std::map<std::string, EntryFates::LeftOut> left_out = {};
  std::int64_t unused = 0;  ///< entries of `left_out` that look like data, listed as `skipped` are
  std::vector<std::string> notes = {};  ///< choices that the input left open
};

/// Entries of the input: samples and skipped ones, and those left out.
[[nodiscard]] std::int64_t entries_of(const PackResult& result);

/// A file beside the shards that lists what `OnBad::skip` left out: entries that look like data and
/// have no place, then samples in the source's order. One line each, path and reason, separated by
/// a tab. There is none if all were packed.
inline constexpr const char* skipped_list_name = "skipped.txt";

/// A file beside the shards: settings and counts of the packing, as JSON.
inline constexpr const char* packing_record_name = "packing.json";

/// Writes a source as shards. Collective: the ranks share the shards, whose bytes do not depend on
/// the number of ranks. Finished shards are collected in the directory `unfinished` and published
/// after all are written; if that is interrupted, the next call with the same source and options
/// continues it. Needs a few MiB of memory beyond the source's. All ranks return or all throw the
/// same Error: usage if the directory already has other shards, bad_input or no_input for the
/// source, also if more than half of a class would be skipped, cannot_write. If the directory holds
/// the shards of the same source and options, returns their result.
[[nodiscard]] PackResult pack(PackSource& source, const PackOptions& options, Communicator& comm);

/// "train-00003-of-00016.h5"
[[nodiscard]] std::string packed_shard_name(SourcePart part, std::int64_t shard,
                                            std::int64_t shards);

/// Number of shards for `bytes` in `samples` samples, about `shard_mb` MiB each; at least one.
[[nodiscard]] std::int64_t shards_for(std::uint64_t bytes, std::int64_t samples, double shard_mb);

}  // namespace lockstep
