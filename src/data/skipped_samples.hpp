#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/data/pack_source.hpp"
#include "shard_record.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// Writes the file skipped_list_name: a line for each unused entry and each sample, in the given
/// order.
void write_skipped_list(const FilePath& path, const PackSource& source,
                        const std::vector<SkippedSample>& skipped);

/// Error(bad_input) if more than half of a class's samples in a part were skipped; `list` is the
/// path of the list, for the message.
void require_most_of_each_class(const PackSource& source, const std::vector<SkippedSample>& skipped,
                                const std::string& list);

}  // namespace lockstep
