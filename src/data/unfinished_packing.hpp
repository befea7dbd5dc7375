#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "packing_record.hpp"
#include "shard_writer.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The directory `unfinished` in the output's directory, from the start of a packing to its end, so
/// that a killed one can be continued: the settings, each finished shard without its attributes
/// (mean and std of all shards), and its record, written after the shard. At the end the shards
/// move to the output's directory. Others may have made what is there: no link is followed, and a
/// file with a second hard link is no shard and no record.
class UnfinishedPacking final {
 public:
  /// The output's directory must be there.
  explicit UnfinishedPacking(const std::string& output);

  /// A file in it.
  [[nodiscard]] FilePath file(const std::string& name) const { return directory_ / name; }

  /// Starts a packing, or continues one of the same settings. Error(usage) without `overwrite` if
  /// the output has shards, or finished ones of other settings; Error(cannot_write).
  void begin(const PackSettings& settings, bool overwrite);
  /// The record of a finished shard; nullopt: it must be packed.
  [[nodiscard]] std::optional<ShardRecord> find(const std::string& name) const;
  /// Stores the shard that `write` writes to the file it is given.
  void store(const std::string& name,
             const std::function<ShardRecord(const TemporaryFile&)>& write);

  /// Removes an older packing's shards, once; then only publish() and end() may follow.
  void begin_publishing();
  /// Adds the attributes and moves a shard to the output, unless that is done; returns its size.
  std::uint64_t publish(const std::string& name, const ShardAttributes& attributes);
  void end();  ///< removes the directory
  /// Removes the directory of a packing of these settings whose end() was interrupted.
  void end_interrupted(const PackSettings& settings);

 private:
  [[nodiscard]] FilePath record(const std::string& name) const;
  /// Empty: there are none. Error(usage) if the file may be another's.
  [[nodiscard]] std::string stored_settings() const;

  OpenDirectory output_;
  FilePath directory_;
  FilePath removed_;     ///< its name while it is removed
  FilePath settings_;    ///< file with the settings
  FilePath publishing_;  ///< exists if shards in the output are of this packing
};

}  // namespace lockstep
