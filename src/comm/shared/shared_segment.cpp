#include "shared_segment.hpp"

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

/// Closed at the end; a mapping stays.
class Descriptor final {
 public:
  explicit Descriptor(int file) : file_(file) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  [[nodiscard]] int get() const noexcept { return file_; }

 private:
  int file_;
};

/// Which no other job of the host has, and no host of the job.
std::string random_name() {
  std::random_device device;
  return fmt::format("/lockstep-{}-{:08x}{:08x}", ::getpid(), device(), device());
}

std::string cannot(const char* what, std::size_t bytes, int error) {
  return fmt::format("{} {} bytes of shared memory failed: {}", what, bytes, std::strerror(error));
}

/// What each rank found: the first reason there is, on all.
std::string first_reason(Communicator& comm, const std::string& mine) {
  for (std::string& reason : all_gather_text(comm, mine)) {
    if (!reason.empty()) return std::move(reason);
  }
  return "";
}

}  // namespace

std::unique_ptr<SharedSegment> SharedSegment::map(int file, std::size_t bytes,
                                                  std::string& reason) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) {
    reason = cannot("mapping", bytes, errno);
    return nullptr;
  }
  return std::unique_ptr<SharedSegment>(new SharedSegment(static_cast<std::byte*>(data), bytes));
}

SharedSegment::Result SharedSegment::make(Communicator& comm, std::size_t bytes) {
  std::unique_ptr<SharedSegment> segment;
  std::string reason;
  std::string name;
  if (comm.rank() == 0) {
    name = random_name();
    const Descriptor file(::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (file.get() < 0) {
      reason = cannot("making", bytes, errno);
      name.clear();
    } else if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
               error != 0) {
      // Found out now: a page that is missing later ends a process by SIGBUS.
      reason = cannot("setting aside", bytes, error);
    } else {
      segment = map(file.get(), bytes, reason);
    }
  }
  const std::string told = broadcast_text(comm, segment ? name : "");
  if (comm.rank() != 0 && !told.empty()) {
    const Descriptor file(::shm_open(told.c_str(), O_RDWR | O_CLOEXEC, 0));
    if (file.get() < 0) {
      reason = errno == ENOENT ? "not all ranks are on one host" : cannot("opening", bytes, errno);
    } else {
      segment = map(file.get(), bytes, reason);
    }
  }
  reason = first_reason(comm, reason);
  if (comm.rank() == 0 && !name.empty()) ::shm_unlink(name.c_str());
  if (!reason.empty()) segment.reset();
  return {.segment = std::move(segment), .reason = std::move(reason)};
}

SharedSegment::~SharedSegment() {
  ::munmap(data_, bytes_);
}

}  // namespace lockstep
