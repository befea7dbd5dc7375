#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/file_path.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace lockstep {

/// What may happen to a file that an output's path names already.
enum class Existing { refuse, replace };

/// Checks the path of a file that a command is to write, before it computes anything. `option`
/// names it in messages, such as "--output". Error(cannot_write) if the path is a directory,
/// device, FIFO, socket or link: nothing is opened or replaced; if its directory is not there; or
/// if its parent is no directory. Error(usage) if there is a file and `existing` is refuse.
void require_output(const char* option, const std::string& path, Existing existing);

/// Error(usage) if the path is that of `input`, by whatever name: it would be replaced while it is
/// read, and lost. `what` it is: "the checkpoint".
void require_other_than(const char* option, const std::string& path, const char* what,
                        const std::string& input);

/// Checks a file that is written in place: Error(cannot_write) with `suggestion` if it is something
/// else, or has a second hard link, which may be outside of the directory.
void require_own_file(const FilePath& path, const struct stat& status, const char* suggestion);

/// The same for what is at the path of a file of a run directory, if there is something.
void require_file_or_absent(const FilePath& path, const char* suggestion);

/// Opens such a file, with O_WRONLY or O_RDWR and more in `flags`, or creates it. Null with errno
/// if that fails. Never blocks. Error as above.
[[nodiscard]] Descriptor open_output(const FilePath& path, int flags, const char* suggestion);

/// Writes all bytes. The errno of a failure; 0: none.
[[nodiscard]] int write_all(const Descriptor& file, std::span<const std::byte> bytes) noexcept;

}  // namespace lockstep
