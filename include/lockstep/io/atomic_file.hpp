#pragma once

#include "lockstep/io/file_parts.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// `writer` writes and closes the temporary file it is given, in the directory of `path`. The file
/// is then fsynced, renamed to `path`, and the directory fsynced, so `path` is always the old file
/// or the whole new one. `before_rename` (may be empty) is called last before the rename. If a
/// callback throws or a call fails (Error(cannot_write) with errno's text), the temporary is
/// removed and `path` is unchanged; only if the last fsync fails is `path` already the new file.
void write_atomically(const std::string& path,
                      const std::function<void(const std::string& temporary)>& writer,
                      const std::function<void()>& before_rename = {});
void write_text_atomically(const std::string& path, std::string_view text);
void write_parts_atomically(const std::string& path, const FileParts& parts);

/// The temporary file of write_atomically(), for a writer that takes long: its owner writes and
/// closes path(), then calls flush() and publish(). Removed by the destructor unless published.
class TemporaryFile final {
 public:
  /// Creates no file; path() is in the directory of `target`.
  explicit TemporaryFile(const std::string& target);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Fsyncs the file. Error(cannot_write), as publish().
  void flush() const;
  /// Renames the file to the target and fsyncs the directory. Replaces no device, FIFO or socket.
  void publish();

 private:
  std::string target_;
  std::string path_;  ///< empty: published
};

/// Makes `link` stand for the file `name` in its directory (core/file_link.hpp), replacing what
/// stood there. Why it is a text file; empty: it is a symbolic link. Error(cannot_write) if neither
/// can be made.
std::string replace_file_link(const std::string& link, const std::string& name);

/// Removes temporary files of killed writers from `directory`. Only for a directory that no other
/// process writes to. Ignores files that it cannot remove.
void remove_stale_temporaries(const std::string& directory);

}  // namespace lockstep
