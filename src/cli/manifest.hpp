#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct ManifestOptions {
  std::vector<std::string> paths;  ///< files, and directories of which all files are listed
  std::string output;              ///< empty: standard output
};

/// The files' SHA-256 sums in the format of `sha256sum`, sorted by name. Names are relative to the
/// directory that is named, or to that of the files. Omits `output`, its signatures, standard
/// output and names that are hidden or temporary. Error(usage) if the paths have several such
/// directories; Error(bad_input) if a directory contains a link that leads out of it, or no file.
[[nodiscard]] std::string manifest(const ManifestOptions& options);

}  // namespace lockstep::cli
