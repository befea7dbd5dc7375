#include "lockstep/core/text_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

#include <algorithm>
#include <span>
#include <string_view>

namespace lockstep {
namespace {

void require_utf8(const std::string& path, std::string_view text) {
  using namespace std::string_view_literals;
  const bool is_utf32 = text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv);
  if (is_utf32 || text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    fail(ExitStatus::bad_input,
         "{} is text in UTF-{} (UTF-8 is read); save it as UTF-8, such as: iconv -f UTF-{} -t "
         "UTF-8 {}",
         path, is_utf32 ? 32 : 16, is_utf32 ? 32 : 16, path);
  }
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    fail(ExitStatus::bad_input, "{} is no text file (byte {} is zero); check the path", path, zero);
  }
}

}  // namespace

std::string read_text_file(const FilePath& at) {
  const std::string& path = at.text();
  const Descriptor file = open_input(at);
  const std::uint64_t size = size_of(file, path, "check the disk");
  std::string text;
  // Files of /proc have contents and no size.
  std::size_t room = static_cast<std::size_t>(size) + 1;
  for (std::size_t read = 0;;) {
    if (room > max_text_bytes) {
      fail(ExitStatus::bad_input,
           "{} has {} bytes or more (a text file has at most {}); check the path", path, size,
           max_text_bytes);
    }
    text.resize(room);
    read += read_input(file, path, read, std::as_writable_bytes(std::span(text)).subspan(read),
                       "check the disk");
    if (read < text.size()) {
      text.resize(read);
      break;
    }
    room = 2 * room + 4096;
  }
  require_utf8(path, text);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.find('\r') != std::string::npos) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
      text[kept++] = text[i];
    }
    text.resize(kept);
  }
  return text;
}

}  // namespace lockstep
