#include "lockstep/core/input_stream.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

namespace lockstep {

InputStream::InputStream(Descriptor file, std::string path)
    : std::istream(nullptr), buffer_(std::move(file), std::move(path)) {
  rdbuf(&buffer_);
  exceptions(std::ios::badbit);  // passes on what the buffer throws
}

std::streambuf::int_type InputStream::Buffer::underflow() {
  const auto count = read_at(file_, offset_, std::as_writable_bytes(std::span(bytes_)));
  if (!count) {
    lockstep::fail(status_of_read_failure(errno), "cannot read {} ({}); check its file system",
                   path_, std::strerror(errno));
  }
  if (*count == 0) return traits_type::eof();
  const std::size_t newline = std::string_view(bytes_.data(), *count).rfind('\n');
  if (newline != std::string_view::npos) line_ = offset_ + newline + 1;
  offset_ += *count;
  require_line(path_, offset_ - line_);
  setg(bytes_.data(), bytes_.data(), bytes_.data() + *count);
  return traits_type::to_int_type(bytes_.front());
}

void require_line(const std::string& path, std::uint64_t bytes) {
  if (bytes <= max_line_bytes) return;
  fail(ExitStatus::bad_input, "{} has a line of {} bytes or more (at most {}); restore the file",
       path, bytes, max_line_bytes);
}

}  // namespace lockstep
