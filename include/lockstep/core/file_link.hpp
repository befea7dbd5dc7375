#pragma once

#include "lockstep/core/file_path.hpp"

#include <string>
#include <string_view>

/// `latest` and `best` of a run: symbolic links to a checkpoint in their directory. A file system
/// without symbolic links has text files instead, which hold the checkpoint's file name in one
/// line.
namespace lockstep {

/// The name of the file that such a path stands for; empty if it is neither a link nor such a text,
/// or, in an OpenDirectory, if the link leads out of its directory.
[[nodiscard]] std::string name_behind(const FilePath& path);

/// The file that such a text stands for, in its directory, where no link is followed; any other
/// path as it is.
[[nodiscard]] FilePath follow_file_link(const std::string& path);

/// The text of a link to the file `name`.
[[nodiscard]] std::string file_link_text(std::string_view name);

}  // namespace lockstep
