#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/shard_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// One shard as its validating rank found it.
struct ShardReport {
  ShardHeader header;
  ShardContents contents;
  std::uint32_t class_names_checksum = 0;
  std::uint64_t bytes = 0;  ///< of the file
};

/// Opens and validates the shards, shard i on rank i mod size. Collective: all shards' reports, in
/// order, on every rank, or one Error on all of them.
[[nodiscard]] std::vector<ShardReport> examine_shards(const std::string& directory,
                                                      const std::vector<std::string>& names,
                                                      Communicator& comm);

}  // namespace lockstep
