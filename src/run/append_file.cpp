#include "append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep {

AppendFile::AppendFile(const std::string& path, Create create) noexcept
    : descriptor_(::open(
          path.c_str(),
          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | (create == Create::exclusive ? O_EXCL : 0),
          0666)) {}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool AppendFile::append(std::string_view record) noexcept {
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  while (!record.empty()) {
    const ssize_t count = ::write(descriptor_, record.data(), record.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      // Remove the partial record, which would corrupt the next one; truncation needs no disk
      // space. If it fails, nothing else can be done.
      [[maybe_unused]] const int result = before >= 0 ? ::ftruncate(descriptor_, before) : -1;
      return false;
    }
    record.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace lockstep
