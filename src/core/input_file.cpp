#include "lockstep/core/input_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

[[noreturn]] void cannot_read(const FilePath& path, int error, const char* suggestion) {
  const std::string target = path.link_target();
  const std::string reason = target.empty()
                                 ? std::strerror(error)
                                 : fmt::format("a link to {}: {}", target, std::strerror(error));
  fail(status_of_read_failure(error), "cannot read {} ({}); {}", path.text(), reason,
       error == EACCES ? "check its permissions" : suggestion);
}

void require_regular(const FilePath& path, const struct stat& status) {
  const std::string kind = special_kind(status.st_mode);
  if (kind.empty()) return;
  fail(ExitStatus::bad_input, "{} is {} (a file is expected); {}", path.text(), kind,
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

Descriptor open_input(const FilePath& path, const char* suggestion) {
  struct stat status {};
  if (!path.get_status(status)) cannot_read(path, errno, suggestion);
  require_regular(path, status);
  // Does not block if the file was exchanged for a FIFO meanwhile.
  Descriptor file = path.open(O_RDONLY);
  if (!file || ::fstat(file.get(), &status) != 0) cannot_read(path, errno, suggestion);
  require_regular(path, status);
  return file;
}

std::uint64_t require_input(const FilePath& path, const char* suggestion) {
  return size_of(open_input(path, suggestion), path.text(), suggestion);
}

std::size_t read_input(const Descriptor& file, const std::string& path, std::uint64_t offset,
                       std::span<std::byte> bytes, const char* suggestion) {
  const auto count = read_at(file, offset, bytes);
  if (count) return *count;
  fail(status_of_read_failure(errno), "cannot read {} ({}); {}", path, std::strerror(errno),
       suggestion);
}

std::uint64_t size_of(const Descriptor& file, const std::string& path, const char* suggestion) {
  struct stat status {};
  if (::fstat(file.get(), &status) == 0) return static_cast<std::uint64_t>(status.st_size);
  fail(status_of_read_failure(errno), "cannot read {} ({}); {}", path, std::strerror(errno),
       suggestion);
}

InputStream::InputStream(Descriptor file, std::string path)
    : std::istream(nullptr), buffer_(std::move(file), std::move(path)) {
  rdbuf(&buffer_);
  exceptions(std::ios::badbit);  // passes on what the buffer throws
}

std::streambuf::int_type InputStream::Buffer::underflow() {
  const std::size_t count =
      read_input(file_, path_, offset_, std::as_writable_bytes(std::span(bytes_)));
  if (count == 0) return traits_type::eof();
  const std::size_t newline = std::string_view(bytes_.data(), count).rfind('\n');
  if (newline != std::string_view::npos) line_ = offset_ + newline + 1;
  offset_ += count;
  require_line(path_, offset_ - line_);
  setg(bytes_.data(), bytes_.data(), bytes_.data() + count);
  return traits_type::to_int_type(bytes_.front());
}

void require_line(const std::string& path, std::uint64_t bytes) {
  if (bytes <= max_line_bytes) return;
  fail(ExitStatus::bad_input, "{} has a line of {} bytes or more (at most {}); restore the file",
       path, bytes, max_line_bytes);
}

InputStream open_input_stream(const FilePath& path, const char* suggestion) {
  return {open_input(path, suggestion), path.text()};
}

}  // namespace lockstep
