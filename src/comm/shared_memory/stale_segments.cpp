#include "stale_segments.hpp"

#include "lockstep/core/descriptor.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep {
namespace {

/// Where the system keeps the segments of shm_open().
constexpr const char* folder = "/dev/shm";

void remove_if_stale(const std::string& name) noexcept {
  const Descriptor file(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return;
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) return;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::shm_unlink(name.c_str());
}

}  // namespace

bool lock_segment(int file) noexcept {
  // Where files cannot be locked, no job removes another's segment either.
  while (::flock(file, LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat facts {};
  return ::fstat(file, &facts) != 0 || facts.st_nlink > 0;
}

void remove_stale_segments() noexcept {
  try {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(segment_prefix)) remove_if_stale("/" + name);
    }
  } catch (...) {
    // Only memory is lost.
  }
}

}  // namespace lockstep
