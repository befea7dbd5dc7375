#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// The SHA-256 sums of files, and of all files in directories, in the format of `sha256sum`, sorted
/// by name. Names are relative to the directory that is named, or to that of the files. Omits
/// `output` (empty: none), its signatures, standard output and names that are hidden or temporary.
/// Error(usage) if the paths have several such directories; Error(bad_input) if a directory
/// contains a link that leads out of it, or no file.
[[nodiscard]] std::string manifest(const std::vector<std::string>& paths,
                                   const std::string& output);

}  // namespace lockstep::cli
