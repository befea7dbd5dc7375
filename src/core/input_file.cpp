#include "lockstep/core/input_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

[[noreturn]] void cannot_read(const FilePath& path, int error, const char* suggestion) {
  const std::string target = path.link_target();
  const std::string reason = target.empty()
                                 ? std::strerror(error)
                                 : fmt::format("a link to {}: {}", target, std::strerror(error));
  fail(status_of_read_failure(error), "cannot read {} ({}); {}", path.text(), reason,
       error == EACCES ? "check its permissions" : suggestion);
}

void require_regular(const FilePath& path, const struct stat& status) {
  const std::string kind = special_kind(status.st_mode);
  if (kind.empty()) return;
  fail(ExitStatus::bad_input, "{} is {} (a file is expected); {}", path.text(), kind,
       S_ISDIR(status.st_mode) ? "name a file in it" : "copy its contents into a file");
}

}  // namespace

const char* special_kind(mode_t mode) noexcept {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "";
    case S_IFDIR:
      return "a directory";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    case S_IFLNK:
      return "a link";
    default:
      return "a device";
  }
}

ExitStatus status_of_read_failure(int error) noexcept {
  switch (error) {
    case EIO:
    case EREMOTEIO:
    case ESTALE:
    case ESHUTDOWN:
    case ENOTCONN:
    case EHOSTDOWN:
    case ETIMEDOUT:
      return ExitStatus::internal;
    default:
      return ExitStatus::no_input;
  }
}

Descriptor open_input(const FilePath& path, const char* suggestion) {
  struct stat status {};
  if (!path.get_status(status)) cannot_read(path, errno, suggestion);
  require_regular(path, status);
  // Does not block if the file was exchanged for a FIFO meanwhile.
  Descriptor file = path.open(O_RDONLY);
  if (!file || ::fstat(file.get(), &status) != 0) cannot_read(path, errno, suggestion);
  require_regular(path, status);
  return file;
}

std::uint64_t require_input(const FilePath& path, const char* suggestion) {
  const Descriptor file = open_input(path, suggestion);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) cannot_read(path, errno, suggestion);
  return static_cast<std::uint64_t>(status.st_size);
}

InputStream open_input_stream(const FilePath& path, const char* suggestion) {
  return {open_input(path, suggestion), path.text()};
}

}  // namespace lockstep
