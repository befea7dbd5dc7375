#include "lockstep/io/atomic_file.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/random_name.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace lockstep {
namespace {

constexpr std::string_view temporary_prefix = ".lockstep-tmp-";
constexpr std::size_t buffer_bytes = std::size_t{1} << 16;

[[noreturn]] void cannot(const char* what, const std::string& path, int error) {
  fail(ExitStatus::cannot_write,
       "cannot {} {} ({}); check that the directory exists, is writable and is not full", what,
       path, std::strerror(error));
}

std::string temporary_name() {
  return std::string(temporary_prefix) + random_name();
}

bool is_temporary_name(std::string_view name) {
  return name.starts_with(temporary_prefix) && is_random_name(name.substr(temporary_prefix.size()));
}

FilePath::Place place_of(const FilePath& target) {
  FilePath::Place place = target.place();
  if (!place.directory) cannot("create", target.text(), errno);
  return place;
}

std::string beside(const FilePath& target, const std::string& name) {
  return (std::filesystem::path(target.text()).parent_path() / name).string();
}

/// Whether a file system says so because it cannot sync files, or directories, at all: then a
/// rename is as durable as it makes it.
bool means_no_sync(int error) noexcept {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == ENOTSUP;
}

void sync(const Descriptor& file, const std::string& path) {
  if (::fsync(file.get()) != 0 && !means_no_sync(errno)) cannot("flush", path, errno);
}

void sync_directory(const Descriptor& directory, const std::string& path) {
  const Descriptor file(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A directory that may be written need not be readable.
  if (!file && errno == EACCES) return;
  if (!file) cannot("open the directory of", path, errno);
  sync(file, path);
}

/// Renames `from` to `name`, replacing a file or link. Error(cannot_write).
void rename_to(const FilePath::Place& place, const std::string& from, const FilePath& target) {
  struct stat status {};
  const bool is_there =
      ::fstatat(place.directory.get(), place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (is_there && !S_ISLNK(status.st_mode) && !S_ISREG(status.st_mode)) {
    fail(ExitStatus::cannot_write, "cannot write {} (it is {}, not a file); give another path",
         target.text(), special_kind(status.st_mode));
  }
  if (::renameat(place.directory.get(), from.c_str(), place.directory.get(), place.name.c_str()) !=
      0) {
    cannot("rename a temporary to", target.text(), errno);
  }
  sync_directory(place.directory, target.text());
}

}  // namespace

TemporaryFile::TemporaryFile(const FilePath& target)
    : target_(target),
      place_(place_of(target)),
      name_(temporary_name()),
      path_(beside(target, name_)),
      file_(::openat(place_.directory.get(), name_.c_str(),
                     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)) {
  if (!file_) cannot("create", target.text(), errno);
}

TemporaryFile::TemporaryFile(const FilePath& target, const FilePath& source)
    : target_(target),
      place_(place_of(target)),
      name_(temporary_name()),
      path_(beside(target, name_)) {
  const FilePath::Place from = place_of(source);
  file_ = Descriptor(::openat(from.directory.get(), from.name.c_str(),
                              O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) cannot("open", source.text(), errno);
  require_own_file(source, status, "give another path");
  if (::renameat(from.directory.get(), from.name.c_str(), place_.directory.get(), name_.c_str()) !=
      0) {
    cannot("rename", source.text(), errno);
  }
}

TemporaryFile::~TemporaryFile() {
  if (!name_.empty()) ::unlinkat(place_.directory.get(), name_.c_str(), 0);
}

std::uint64_t TemporaryFile::bytes() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) cannot("examine", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void TemporaryFile::append(std::span<const std::byte> bytes) noexcept {
  if (error_ == 0) error_ = write_all(file_, std::as_bytes(std::span(buffer_)));
  buffer_.clear();
  if (error_ == 0) error_ = write_all(file_, bytes);
}

void TemporaryFile::append(std::string_view text) noexcept {
  if (buffer_.size() + text.size() > buffer_bytes) return append(std::as_bytes(std::span(text)));
  buffer_ += text;
}

void TemporaryFile::flush() {
  append(std::span<const std::byte>());
  if (error_ != 0) cannot("write", target_.text(), error_);
  sync(file_, target_.text());
}

void TemporaryFile::publish() {
  struct stat mine {};
  struct stat named {};
  if (::fstat(file_.get(), &mine) != 0 ||
      ::fstatat(place_.directory.get(), name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) {
    cannot("rename a temporary to", target_.text(), errno);
  }
  if (mine.st_dev != named.st_dev || mine.st_ino != named.st_ino) {
    fail(ExitStatus::cannot_write,
         "cannot write {} (another process has replaced its temporary file); give a path in a "
         "directory that others cannot write to",
         target_.text());
  }
  rename_to(place_, name_, target_);
  name_.clear();
}

void write_atomically(const FilePath& path, const std::function<void(TemporaryFile&)>& writer,
                      const std::function<void()>& before_rename) {
  TemporaryFile temporary(path);
  writer(temporary);
  temporary.flush();
  if (before_rename) before_rename();
  temporary.publish();
}

void write_text_atomically(const FilePath& path, std::string_view text) {
  write_parts_atomically(path, {{.view = std::as_bytes(std::span(text))}});
}

void write_parts_atomically(const FilePath& path, const FileParts& parts) {
  write_atomically(path, [&](TemporaryFile& file) {
    for (const FilePart& part : parts) {
      file.append(part.bytes);
      file.append(part.view);
    }
  });
}

std::string replace_file_link(const FilePath& link, const std::string& name) {
  const FilePath::Place place = place_of(link);
  const std::string temporary = temporary_name();
  if (::symlinkat(name.c_str(), place.directory.get(), temporary.c_str()) == 0) {
    try {
      rename_to(place, temporary, link);
    } catch (...) {
      ::unlinkat(place.directory.get(), temporary.c_str(), 0);
      throw;
    }
    return {};
  }
  std::string reason = std::strerror(errno);
  write_text_atomically(link, file_link_text(name));
  return reason;
}

void remove_stale_temporaries(const FilePath& directory) {
  try {
    const OpenDirectory open(directory);
    for (const DirectoryEntry& entry : entries_in(open / ".")) {
      const bool is_ours = entry.error == 0 && entry.status.st_uid == ::geteuid() &&
                           !entry.is_directory() && is_temporary_name(entry.name);
      if (is_ours) static_cast<void>((open / entry.name).remove());
    }
  } catch (const Error&) {
    return;  // as for a file that cannot be removed
  }
}

}  // namespace lockstep
