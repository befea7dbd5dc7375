#include "lockstep/core/input_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace lockstep {
namespace {

[[noreturn]] void cannot_read(const std::string& path, int error, const char* suggestion) {
  std::error_code no_link;
  const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
  const std::string reason =
      no_link ? std::strerror(error)
              : fmt::format("a link to {}: {}", target.string(), std::strerror(error));
  fail(status_of_read_failure(error), "cannot read {} ({}); {}", path, reason,
       error == EACCES ? "check its permissions" : suggestion);
}

void require_regular(const std::string& path, const struct stat& status) {
  const std::string kind = special_kind(status.st_mode);
  if (kind.empty()) return;
  fail(ExitStatus::bad_input, "{} is {} (a file is expected); {}", path, kind,
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

Descriptor open_input(const std::string& path, const char* suggestion) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) cannot_read(path, errno, suggestion);
  require_regular(path, status);
  // Does not block if the file was exchanged for a FIFO meanwhile.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file || ::fstat(file.get(), &status) != 0) cannot_read(path, errno, suggestion);
  require_regular(path, status);
  return file;
}

std::uint64_t require_input(const std::string& path, const char* suggestion) {
  const Descriptor file = open_input(path, suggestion);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) cannot_read(path, errno, suggestion);
  return static_cast<std::uint64_t>(status.st_size);
}

std::ifstream open_input_stream(const std::string& path, const char* suggestion) {
  require_input(path, suggestion);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) cannot_read(path, errno, suggestion);
  return stream;
}

}  // namespace lockstep
