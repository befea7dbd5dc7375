#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/input_stream.hpp"

#include <sys/stat.h>

/// What every command opens to read. Only regular files are inputs: a device, FIFO or socket may
/// block, act, or never end when it is opened, so it is refused before.
namespace lockstep {

/// "a directory", "a FIFO", ...; empty for a regular file.
[[nodiscard]] const char* special_kind(mode_t mode) noexcept;

/// Status of a failed open or read. `internal` for a file system that does not answer, which may be
/// there again when the job is restarted, perhaps on other nodes; else `no_input`.
[[nodiscard]] ExitStatus status_of_read_failure(int error) noexcept;

/// Opens a regular file for reading. Error(bad_input) if it is something else; else
/// Error(status_of_read_failure()), with `suggestion` if the file is not there.
[[nodiscard]] Descriptor open_input(const FilePath& path,
                                    const char* suggestion = "check the path");

/// The same checks, for a library that opens the file itself. Returns its size in bytes.
std::uint64_t require_input(const FilePath& path, const char* suggestion = "check the path");

/// The same checks, for a file that is read piece by piece.
[[nodiscard]] InputStream open_input_stream(const FilePath& path,
                                            const char* suggestion = "check the path");

}  // namespace lockstep
