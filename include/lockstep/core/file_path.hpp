#pragma once

#include "lockstep/core/descriptor.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

/// The path of a file. Either as a user gave it: then links lead to the file. Or the name of a file
/// in an OpenDirectory: then no link does, so that whoever made the contents of the directory
/// cannot lead a reader or a writer out of it.
class FilePath final {
 public:
  FilePath(std::string path) : text_(std::move(path)) {}                 // NOLINT
  FilePath(const char* path) : text_(path) {}                            // NOLINT
  FilePath(const std::filesystem::path& path) : text_(path.string()) {}  // NOLINT

  /// A file in this directory.
  [[nodiscard]] FilePath operator/(std::string_view name) const;
  /// With the directory's path, for messages.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

  [[nodiscard]] bool follows_links() const noexcept { return root_ == nullptr; }

  /// open() that never blocks and is closed at exec. Null with errno; ELOOP or ENOTDIR if a link
  /// was not followed.
  [[nodiscard]] Descriptor open(int flags, mode_t mode = 0) const;
  /// False with errno. Of a link that is not followed: the link's.
  [[nodiscard]] bool get_status(struct stat& status) const;
  [[nodiscard]] bool exists() const;
  /// mkdir(). False with errno, EEXIST if there is something.
  [[nodiscard]] bool make_directory() const;
  /// unlink(). False with errno.
  bool remove() const;
  /// The text of the link at the path; empty if there is none.
  [[nodiscard]] std::string link_target() const;

  /// The directory that holds the file, with O_PATH, and its name there. Null with errno.
  struct Place {
    Descriptor directory;
    std::string name;
  };
  [[nodiscard]] Place place() const;

 private:
  friend class OpenDirectory;
  struct Root {
    Descriptor directory;  ///< null: it could not be opened
    int error = 0;
  };
  FilePath(std::shared_ptr<const Root> root, std::string name, std::string text)
      : root_(std::move(root)), name_(std::move(name)), text_(std::move(text)) {}

  std::shared_ptr<const Root> root_;  ///< null: a user's path
  std::string name_;                  ///< in the root
  std::string text_;
};

/// A directory that is opened once, such as a run directory: replacing its path later, or links in
/// it, lead to no other one. If it cannot be opened, none of its files can.
class OpenDirectory final {
 public:
  explicit OpenDirectory(const FilePath& path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// A file in it or in one of its directories; ".." leads nowhere.
  [[nodiscard]] FilePath operator/(std::string_view name) const;
  /// Whether its path still leads to it.
  [[nodiscard]] bool is_current() const;

 private:
  std::shared_ptr<const FilePath::Root> root_;
  std::string path_;
};

}  // namespace lockstep
