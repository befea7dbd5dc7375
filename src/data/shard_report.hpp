#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/shard_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What the validating rank found in one shard.
struct ShardReport {
  ShardHeader header;
  ShardContents contents;
  std::uint32_t class_names_checksum = 0;
  std::uint64_t bytes = 0;  ///< file size
};

/// Opens and validates the shards, shard i on rank i mod size. Collective: every rank returns all
/// reports in order, or all ranks throw the same Error. ShardContents::has_samples is of all shards
/// in the first report, and empty in the others.
[[nodiscard]] std::vector<ShardReport> examine_shards(const std::string& directory,
                                                      const std::vector<std::string>& names,
                                                      Communicator& comm,
                                                      const ClassNumbering& numbering = {});

}  // namespace lockstep
