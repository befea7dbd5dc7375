#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_path.hpp"

#include <sys/stat.h>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <span>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

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

/// read_at() and fstat() with Error(status_of_read_failure()), `path` and `suggestion`.
[[nodiscard]] std::size_t read_input(const Descriptor& file, const std::string& path,
                                     std::uint64_t offset, std::span<std::byte> bytes,
                                     const char* suggestion = "check its file system");
[[nodiscard]] std::uint64_t size_of(const Descriptor& file, const std::string& path,
                                    const char* suggestion = "check its file system");

/// Of the text of a run's files.
inline constexpr std::uint64_t max_line_bytes = std::uint64_t{1} << 26;

/// Reads an open text file from its beginning, piece by piece. Each reading throws: Error(
/// status_of_read_failure()), and Error(bad_input) for a line longer than max_line_bytes.
class InputStream final : public std::istream {
 public:
  /// `path` names it in messages.
  InputStream(Descriptor file, std::string path);

 private:
  class Buffer final : public std::streambuf {
   public:
    Buffer(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

   private:
    int_type underflow() override;

    Descriptor file_;
    std::string path_;
    std::uint64_t offset_ = 0;
    std::uint64_t line_ = 0;  ///< where the last line begins
    std::vector<char> bytes_ = std::vector<char>(std::size_t{1} << 16);
  };
  Buffer buffer_;
};

/// Error(bad_input) for such a line.
void require_line(const std::string& path, std::uint64_t bytes);

/// The same checks, for a file that is read piece by piece.
[[nodiscard]] InputStream open_input_stream(const FilePath& path,
                                            const char* suggestion = "check the path");

}  // namespace lockstep
