#include "lockstep/io/atomic_file.hpp"

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace lockstep {
namespace {

constexpr std::string_view temporary_mark = ".tmp-";

[[noreturn]] void cannot(const char* what, const std::string& path, int error) {
  fail(ExitStatus::cannot_write,
       "cannot {} {} ({}); check that the directory exists, is writable and is not full", what,
       path, std::strerror(error));
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string temporary_name(const std::string& path) {
  return fmt::format("{}/.{}{}{}-{}", directory_of(path),
                     std::filesystem::path(path).filename().string(), temporary_mark, ::getpid(),
                     host_name());
}

/// Whether a file system says so because it cannot sync files, or directories, at all: then a
/// rename is as durable as it makes it.
bool means_no_sync(int error) noexcept {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == ENOTSUP;
}

void sync(const std::string& path, int flags) {
  const Descriptor file(::open(path.c_str(), flags | O_CLOEXEC));
  // A directory that may be written need not be readable.
  if (!file && (flags & O_DIRECTORY) != 0 && errno == EACCES) return;
  if (!file) cannot("open", path, errno);
  if (::fsync(file.get()) != 0 && !means_no_sync(errno)) cannot("flush", path, errno);
}

void write_all(const std::string& path, const Descriptor& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void write_parts(const std::string& path, const FileParts& parts) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) cannot("create", path, errno);
  for (const FilePart& part : parts) {
    write_all(path, file, std::as_bytes(std::span(part.bytes)));
    write_all(path, file, part.view);
  }
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& target)
    : target_(target), path_(temporary_name(target)) {
  ::unlink(path_.c_str());
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void TemporaryFile::flush() const {
  sync(path_, O_RDONLY);
}

void TemporaryFile::publish() {
  require_file_or_absent(target_, "give another path");
  if (::rename(path_.c_str(), target_.c_str()) != 0)
    cannot("rename a temporary to", target_, errno);
  path_.clear();
  sync(directory_of(target_), O_RDONLY | O_DIRECTORY);
}

void write_atomically(const std::string& path,
                      const std::function<void(const std::string&)>& writer,
                      const std::function<void()>& before_rename) {
  TemporaryFile temporary(path);
  writer(temporary.path());
  temporary.flush();
  if (before_rename) before_rename();
  temporary.publish();
}

void write_text_atomically(const std::string& path, std::string_view text) {
  write_parts_atomically(path, {{.view = std::as_bytes(std::span(text))}});
}

void write_parts_atomically(const std::string& path, const FileParts& parts) {
  write_atomically(path, [&](const std::string& temporary) { write_parts(temporary, parts); });
}

std::string replace_file_link(const std::string& link, const std::string& name) {
  TemporaryFile temporary(link);
  if (::symlink(name.c_str(), temporary.path().c_str()) == 0) {
    temporary.publish();
    return {};
  }
  std::string reason = std::strerror(errno);
  write_text_atomically(link, file_link_text(name));
  return reason;
}

void remove_stale_temporaries(const std::string& directory) {
  try {
    for (const DirectoryEntry& entry : entries_in(directory)) {
      if (entry.name.starts_with('.') && entry.name.find(temporary_mark) != std::string::npos) {
        ::unlink((directory + "/" + entry.name).c_str());
      }
    }
  } catch (const Error&) {
    return;  // as for a file that cannot be removed
  }
}

}  // namespace lockstep
