#include "lockstep/core/descriptor.hpp"

#include <cerrno>

namespace lockstep {

std::optional<std::size_t> read_at(const Descriptor& file, std::uint64_t offset,
                                   std::span<std::byte> bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pread(file.get(), bytes.data() + done, bytes.size() - done,
                                  static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace lockstep
