#include "lockstep/core/file_path.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace lockstep {
namespace {

constexpr int always = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
constexpr int as_directory = O_PATH | O_DIRECTORY | O_CLOEXEC;

/// Opens each directory on the way without following a link. Without ".." this is what openat2()
/// does with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, but on every kernel, and under filters that
/// do not know that call.
FilePath::Place walk(int root, std::string_view name) {
  FilePath::Place place{.directory = Descriptor(::openat(root, ".", as_directory)), .name = {}};
  while (place.directory) {
    const std::size_t slash = name.find('/');
    place.name = name.substr(0, slash);
    if (place.name == "..") {
      errno = EXDEV;
      place.directory.reset();
    }
    if (slash == std::string_view::npos) break;
    name.remove_prefix(slash + 1);
    place.directory =
        Descriptor(::openat(place.directory.get(), place.name.c_str(), as_directory | O_NOFOLLOW));
  }
  return place;
}

}  // namespace

FilePath FilePath::operator/(std::string_view name) const {
  const auto joined = [&](const std::string& directory) {
    return (std::filesystem::path(directory) / name).string();
  };
  return root_ ? FilePath(root_, joined(name_), joined(text_)) : FilePath(joined(text_));
}

FilePath::Place FilePath::place() const {
  if (root_) {
    errno = root_->error;
    return root_->directory ? walk(root_->directory.get(), name_) : Place();
  }
  const std::filesystem::path path(text_);
  const std::string parent = path.parent_path().string();
  return {.directory = Descriptor(::open(parent.empty() ? "." : parent.c_str(), as_directory)),
          .name = path.filename().string()};
}

Descriptor FilePath::open(int flags, mode_t mode) const {
  if (!root_) return Descriptor(::open(text_.c_str(), flags | always, mode));
  const Place at = place();
  if (!at.directory) return {};
  return Descriptor(
      ::openat(at.directory.get(), at.name.c_str(), flags | always | O_NOFOLLOW, mode));
}

bool FilePath::get_status(struct stat& status) const {
  if (!root_) return ::stat(text_.c_str(), &status) == 0;
  const Place at = place();
  return at.directory &&
         ::fstatat(at.directory.get(), at.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

bool FilePath::exists() const {
  struct stat status {};
  return get_status(status);
}

bool FilePath::make_directory() const {
  const Place at = place();
  return at.directory && ::mkdirat(at.directory.get(), at.name.c_str(), 0777) == 0;
}

bool FilePath::remove() const {
  const Place at = place();
  return at.directory && ::unlinkat(at.directory.get(), at.name.c_str(), 0) == 0;
}

std::string FilePath::link_target() const {
  const Place at = place();
  std::array<char, 4096> target{};
  const ssize_t size =
      at.directory ? ::readlinkat(at.directory.get(), at.name.c_str(), target.data(), target.size())
                   : -1;
  return {target.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

OpenDirectory::OpenDirectory(const FilePath& path) : path_(path.text()) {
  auto root = std::make_shared<FilePath::Root>();
  root->directory = path.open(O_PATH | O_DIRECTORY);
  root->error = root->directory ? 0 : errno;
  root_ = std::move(root);
}

FilePath OpenDirectory::operator/(std::string_view name) const {
  return FilePath(root_, "", path_) / name;
}

bool OpenDirectory::is_current() const {
  struct stat now {};
  struct stat held {};
  return ::stat(path_.c_str(), &now) == 0 && root_->directory &&
         ::fstat(root_->directory.get(), &held) == 0 && now.st_dev == held.st_dev &&
         now.st_ino == held.st_ino;
}

}  // namespace lockstep
