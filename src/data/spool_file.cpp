#include "spool_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep {

SpoolFile::SpoolFile(const FilePath& file) {
  const TemporaryFile named(file);
  path_ = named.path();
  file_ = Descriptor(::fcntl(named.file().get(), F_DUPFD_CLOEXEC, 0));
  if (!file_) {
    fail(ExitStatus::cannot_write, "cannot open {} again ({}); raise the limit of open files",
         path_, std::strerror(errno));
  }
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
