#include "lockstep/core/output_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace lockstep {
void require_output(const char* option, const std::string& path, Existing existing) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    // A text of a file system without symbolic links, such as `latest`, is a link, too.
    const std::string kind = name_behind(path).empty() ? special_kind(status.st_mode) : "a link";
    if (!kind.empty()) {
      fail(ExitStatus::cannot_write,
           "cannot write {} {} (it is {}, which would be replaced by a file); give {} another path",
           option, path, kind, option);
    }
    if (existing == Existing::replace) return;
    fail(ExitStatus::usage,
         "{} {} exists already (it would be replaced); give another path, or --overwrite", option,
         path);
  }
  const int error = errno;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (error != ENOENT || path.empty() || path.ends_with('/') ||
      ::stat(parent.empty() ? "." : parent.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    fail(ExitStatus::cannot_write,
         "cannot write {} {} ({}); create its directory first, or give "
         "another path",
         option, path.empty() ? "''" : path, std::strerror(error));
  }
}

void require_other_than(const char* option, const std::string& path, const char* what,
                        const std::string& input) {
  std::error_code absent;
  if (!std::filesystem::equivalent(path, input, absent)) return;
  fail(ExitStatus::usage, "{} {} is {} itself (it would be lost); choose another", option, path,
       what);
}

void require_own_file(const FilePath& path, const struct stat& status, const char* suggestion) {
  const std::string kind = special_kind(status.st_mode);
  if (!kind.empty()) {
    fail(ExitStatus::cannot_write, "cannot write {} (it is {}, not a file); {}", path.text(), kind,
         suggestion);
  }
  if (status.st_nlink <= 1) return;
  fail(ExitStatus::cannot_write,
       "cannot write {} (it has {} hard links, and the others would change with it); {}",
       path.text(), status.st_nlink, suggestion);
}

void require_file_or_absent(const FilePath& path, const char* suggestion) {
  struct stat status {};
  if (path.get_status(status)) require_own_file(path, status, suggestion);
}

Descriptor open_output(const FilePath& path, int flags, const char* suggestion) {
  require_file_or_absent(path, suggestion);
  Descriptor file = path.open(flags | O_CREAT, 0666);
  struct stat status {};
  if (file && ::fstat(file.get(), &status) == 0) require_own_file(path, status, suggestion);
  return file;
}

int write_all(const Descriptor& file, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace lockstep
