#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/io/file_parts.hpp"

#include <functional>
#include <string>
#include <string_view>

/// How every file that other programs and later runs read is created.
namespace lockstep {

/// A new file with a random name beside its target, which nobody else can have made: creating it
/// fails rather than follow a link or open a file that is there. The mode follows the umask.
/// publish() makes it the target; else the destructor removes it.
class TemporaryFile final {
 public:
  /// Error(cannot_write) as all others.
  explicit TemporaryFile(const FilePath& target);
  /// Moves the file `source` there, unless it has a second hard link: what is written to it would
  /// change that one, too.
  TemporaryFile(const FilePath& target, const FilePath& source);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  [[nodiscard]] const FilePath& target() const noexcept { return target_; }
  /// For messages.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const Descriptor& file() const noexcept { return file_; }
  [[nodiscard]] std::uint64_t bytes() const;

  /// Keeps the first failure for flush().
  void append(std::string_view text) noexcept;
  void append(std::span<const std::byte> bytes) noexcept;
  /// Fsyncs the file.
  void flush();
  /// Renames the file to the target and fsyncs the directory. Replaces no device, FIFO, socket or
  /// directory.
  void publish();

 private:
  FilePath target_;
  FilePath::Place place_;  ///< of the target
  std::string name_;       ///< in its directory; empty: published
  std::string path_;
  Descriptor file_;
  std::string buffer_;  ///< appended but not written
  int error_ = 0;       ///< of append()
};

/// `writer` writes the new file, which is then fsynced, renamed to `path`, and the directory
/// fsynced, so `path` is always the old file or the whole new one. `before_rename` (may be empty)
/// is called last before the rename. If a callback throws or a call fails (Error(cannot_write)
/// with errno's text), the new file is removed and `path` is unchanged; only if the last fsync
/// fails is `path` already the new file.
void write_atomically(const FilePath& path, const std::function<void(TemporaryFile&)>& writer,
                      const std::function<void()>& before_rename = {});
void write_text_atomically(const FilePath& path, std::string_view text);
void write_parts_atomically(const FilePath& path, const FileParts& parts);

/// Makes `link` stand for the file `name` in its directory (core/file_link.hpp), replacing what
/// stood there. Why it is a text file; empty: it is a symbolic link. Error(cannot_write) if neither
/// can be made.
std::string replace_file_link(const FilePath& link, const std::string& name);

/// Removes temporary files of this user's killed writers from `directory`, by the form of their
/// name, which no other program uses. Only for a directory that no other process writes to. Ignores
/// files that it cannot remove.
void remove_stale_temporaries(const FilePath& directory);

}  // namespace lockstep
