#pragma once

#include "lockstep/core/file_path.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// How every command lists and makes a directory.
namespace lockstep {

/// Names that no command takes for data: those that begin with a dot (hidden files, `._*` of macOS,
/// `.nfs*` of removed files that are open), editors' `*~` and `*.swp`, and the folders that systems
/// make: `__MACOSX`, `@eaDir`, `lost+found`, `$RECYCLE.BIN`, `System Volume Information`.
[[nodiscard]] bool is_hidden_or_temporary(std::string_view name) noexcept;

/// Whether a part of a path in an archive is such a name.
[[nodiscard]] bool is_hidden_path(std::string_view path) noexcept;

struct DirectoryEntry {
  std::string name;
  int error = 0;          ///< errno if it cannot be examined, as a dangling link
  struct stat status {};  ///< unless `error`. Of a link's target if the directory is a user's path
  [[nodiscard]] bool is_directory() const noexcept { return error == 0 && S_ISDIR(status.st_mode); }
  [[nodiscard]] bool is_file() const noexcept { return error == 0 && S_ISREG(status.st_mode); }
};

/// The names in a directory that are not hidden or temporary, sorted. Error(bad_input) if the path
/// is something else, and Error(status_of_read_failure()) if it cannot be listed, with
/// `suggestion`.
[[nodiscard]] std::vector<std::string> names_in(
    const FilePath& directory, const char* suggestion = "check the path and its permissions");

/// All entries, hidden ones too, examined and sorted by name. Error as above.
[[nodiscard]] std::vector<DirectoryEntry> entries_in(
    const FilePath& directory, const char* suggestion = "check the path and its permissions");

/// Error(bad_input) with `suggestion` if there is something else at the path.
void require_directory_if_present(const FilePath& path, const char* suggestion);

/// Makes a directory, unless it is there; of a user's path its parents, too. Error(cannot_write)
/// with `suggestion`.
void make_directories(const FilePath& directory, const char* suggestion);

}  // namespace lockstep
