#pragma once

#include "lockstep/data/shard_copies.hpp"

#include <stop_token>
#include <string>

namespace lockstep {

/// Copies the shard to `target` in pieces of 1 MiB and reads the copy back: labels, offsets and
/// checksums must be those that were validated, and each sample's bytes must be of its checksum; a
/// shard without checksums is compared as a whole. False where it was asked to stop; the file is
/// then incomplete. Error(cannot_write), Error(no_input) or Error(bad_input) leaves it so too.
[[nodiscard]] bool copy_shard(const ShardToCopy& shard, const std::string& target,
                              const std::stop_token& stop);

}  // namespace lockstep
