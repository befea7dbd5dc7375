#include "spool_file.hpp"

#include "lockstep/core/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep {

SpoolFile::SpoolFile(std::string path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
  if (!file_) {
    fail(ExitStatus::cannot_write,
         "cannot create {} ({}); check that the directory is writable and is not full", path_,
         std::strerror(errno));
  }
  ::unlink(path_.c_str());
}

void SpoolFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail(ExitStatus::cannot_write, "cannot write {} ({}); check that the disk is not full", path_,
           std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void SpoolFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  const auto count = read_at(file_, offset, bytes);
  if (count && *count == bytes.size()) return;
  fail(ExitStatus::internal, "cannot read {} back ({}); check the disk", path_,
       count ? "it is shorter than what was written" : std::strerror(errno));
}

}  // namespace lockstep
