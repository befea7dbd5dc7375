#include "stage_directory.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "lockstep-stage-";
/// Prefix of a directory that is not locked yet.
constexpr std::string_view unfinished_prefix = ".lockstep-stage-";
/// Reserve 1/50 of the file system for other jobs and the system's own files.
constexpr std::uint64_t reserved_share = 50;

std::string safe_name(const std::string& job) {
  std::string name = job;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '-';
  }
  return name;
}

/// Nothing if other users' names may not be seen.
std::vector<std::string> listed(const std::string& parent) {
  try {
    return names_in(parent);
  } catch (const Error&) {
    return {};
  }
}

/// Removes directories of dead holders. Keeps those of other users and of running jobs, and all
/// other files.
void remove_leftovers(const std::string& parent) {
  for (const std::string& name : listed(parent)) {
    if (!name.starts_with(prefix)) continue;
    const std::string leftover = fmt::format("{}/{}", parent, name);
    struct stat status {};
    if (::lstat(leftover.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != ::geteuid()) {
      continue;
    }
    const Descriptor lock(::open((leftover + "/lock").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    std::error_code not_removed;
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      fs::remove_all(leftover, not_removed);
    }
  }
}

[[noreturn]] void cannot(const char* what, const std::string& path, int error) {
  fail(ExitStatus::cannot_write,
       "cannot {} {} ({}); name storage of the node's own that is writable in --stage-dir", what,
       path, std::strerror(error));
}

}  // namespace

std::uint64_t prepare_for_staging(const std::string& parent) {
  make_directories(parent, "name storage of the node's own that is writable in --stage-dir");
  remove_leftovers(parent);
  struct statvfs status {};
  if (::statvfs(parent.c_str(), &status) != 0) cannot("ask the free space of", parent, errno);
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const std::uint64_t reserved = std::uint64_t{status.f_blocks} * status.f_frsize / reserved_share;
  return free > reserved ? free - reserved : 0;
}

StageDirectory::StageDirectory(const std::string& parent, const std::string& job) {
  // Rename it only with the lock held, so that no other job takes it for a leftover.
  std::string unfinished = fmt::format("{}/{}{}-XXXXXX", parent, unfinished_prefix, safe_name(job));
  if (::mkdtemp(unfinished.data()) == nullptr) cannot("create a directory in", parent, errno);
  const std::string name = fs::path(unfinished).filename().string().substr(1);
  const std::string finished = parent + "/" + name;
  const std::string lock = unfinished + "/lock";
  lock_ = Descriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  // Proceed if locks do not work: then no job removes leftovers at all.
  const bool made = static_cast<bool>(lock_) &&
                    (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
                    ::rename(unfinished.c_str(), finished.c_str()) == 0;
  if (!made) {
    const int cause = errno;
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    cannot("use a directory in", parent, cause);
  }
  path_ = finished;
}

StageDirectory::~StageDirectory() {
  std::error_code not_removed;  // the next job tries again
  fs::remove_all(path_, not_removed);
}

}  // namespace lockstep
