#pragma once

#include "lockstep/data/shard_copies.hpp"

#include <stop_token>
#include <string>

namespace lockstep {

/// Copies the shard to `target` in pieces of 1 MiB and reads the copy back: labels, offsets and
/// checksums must equal the validated ones, and each sample must match its checksum; a shard
/// without checksums is compared as a whole file. Returns false if stopped; `target` is then
/// incomplete, as it may be after Error(cannot_write), Error(no_input) or Error(bad_input).
[[nodiscard]] bool copy_shard(const ShardToCopy& shard, const std::string& target,
                              const std::stop_token& stop);

}  // namespace lockstep
