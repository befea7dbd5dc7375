#include "shared_segment.hpp"

#include "lockstep/comm/first_text.hpp"
#include "lockstep/core/descriptor.hpp"
#include "stale_segments.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace lockstep {
namespace {

/// A name that is unique among the jobs on this host and the hosts of this job.
std::string random_name() {
  std::random_device device;
  return fmt::format("/{}{}-{:08x}{:08x}", segment_prefix, ::getpid(), device(), device());
}

std::string cannot(const char* what, std::size_t bytes, int error) {
  return fmt::format("{} {} bytes of shared memory failed: {}", what, bytes, std::strerror(error));
}

}  // namespace

std::unique_ptr<SharedSegment> SharedSegment::map(int file, const Layout& layout, int rank,
                                                  std::string& reason) {
  // Each rank allocates its own part, which places it in its processor's memory. It does so now,
  // because running out of pages later would kill the process with SIGBUS.
  const std::size_t own = layout.parts + static_cast<std::size_t>(rank) * layout.a_rank;
  int error = ::posix_fallocate(file, static_cast<off_t>(own), static_cast<off_t>(layout.a_rank));
  if (error == 0 && rank == 0) {
    error = ::posix_fallocate(file, 0, static_cast<off_t>(layout.parts));
  }
  if (error != 0) {
    reason = cannot("setting aside", layout.a_rank, error);
    return nullptr;
  }
  void* const data = ::mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) {
    reason = cannot("mapping", layout.bytes, errno);
    return nullptr;
  }
  return std::unique_ptr<SharedSegment>(new SharedSegment(static_cast<std::byte*>(data), layout));
}

SharedSegment::Result SharedSegment::make(Communicator& comm, const Sizes& sizes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  Layout layout{.parts = (sizes.common + page - 1) / page * page, .a_rank = sizes.a_rank};
  layout.bytes = layout.parts + static_cast<std::size_t>(comm.size()) * layout.a_rank;
  std::unique_ptr<SharedSegment> segment;
  std::string reason;
  std::string name;
  Descriptor file;  // rank 0's lock on the name
  if (comm.rank() == 0) {
    remove_stale_segments();
    do {
      name = random_name();
      file = Descriptor(::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    } while (file && !lock_segment(file.get()));
    if (!file) {
      reason = cannot("making", layout.bytes, errno);
      name.clear();
    } else if (::ftruncate(file.get(), static_cast<off_t>(layout.bytes)) != 0) {
      reason = cannot("making", layout.bytes, errno);
    } else {
      segment = map(file.get(), layout, 0, reason);
    }
  }
  const std::string told = broadcast_text(comm, segment ? name : "");
  if (comm.rank() != 0 && !told.empty()) {
    file = Descriptor(::shm_open(told.c_str(), O_RDWR | O_CLOEXEC, 0));
    if (!file) {
      reason = errno == ENOENT ? "not all ranks are on one host"
                               : cannot("opening", layout.bytes, errno);
    } else {
      segment = map(file.get(), layout, comm.rank(), reason);
    }
  }
  reason = first_text(comm, reason);
  if (comm.rank() == 0 && !name.empty()) ::shm_unlink(name.c_str());
  if (!reason.empty()) segment.reset();
  return {.segment = std::move(segment), .reason = std::move(reason)};
}

SharedSegment::~SharedSegment() {
  ::munmap(data_, bytes_);
}

}  // namespace lockstep
