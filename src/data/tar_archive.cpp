#include "tar_archive.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/parse_number.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

// The layout of a header is that of POSIX.1-2017, pax, "ustar Interchange Format".
constexpr std::uint64_t block_bytes = 512;
constexpr std::uint64_t max_extension_bytes = std::uint64_t{1} << 20;  ///< long names, pax records
constexpr std::uint64_t max_size = std::uint64_t{1} << 60;

/// Reads headers, and the small members between them, with few calls.
class Window final {
 public:
  explicit Window(const TarArchive& archive) : archive_(archive) {}

  /// `offset + count` must not be beyond the archive. Valid until the next call.
  std::string_view at(std::uint64_t offset, std::uint64_t count) {
    if (offset < begin_ || offset + count > begin_ + bytes_.size()) {
      begin_ = offset;
      bytes_.resize(std::max(count, std::min(window_bytes, archive_.end - offset)));
      archive_.read(offset, std::as_writable_bytes(std::span(bytes_)));
    }
    return {bytes_.data() + (offset - begin_), count};
  }

 private:
  static constexpr std::uint64_t window_bytes = 4096;
  const TarArchive& archive_;
  std::uint64_t begin_ = 0;
  std::vector<char> bytes_;
};

[[noreturn]] void damaged(const TarArchive& archive, std::uint64_t offset, const char* reason) {
  fail(ExitStatus::bad_input, "{} is damaged at byte {} ({}); copy it again", archive.path,
       offset - archive.begin, reason);
}

std::string_view until_zero(std::string_view text) {
  return text.substr(0, text.find('\0'));
}

/// A number in octal digits, or big-endian with the first bit set. nullopt if it is neither.
std::optional<std::uint64_t> number_in(std::string_view field) {
  std::uint64_t value = 0;
  if ((static_cast<unsigned char>(field[0]) & 0x80u) != 0) {
    for (std::size_t i = 0; i < field.size(); ++i) {
      const auto byte = static_cast<unsigned char>(field[i]);
      if (value >> 52 != 0) return std::nullopt;
      value = value << 8 | (i == 0 ? byte & 0x7Fu : byte);
    }
    return value;
  }
  field = until_zero(field);
  while (field.starts_with(' ')) field.remove_prefix(1);
  while (field.ends_with(' ')) field.remove_suffix(1);
  if (field.empty()) return 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 8);
  if (error != std::errc{} || end != field.data() + field.size()) return std::nullopt;
  return value;
}

bool has_good_checksum(std::string_view header) {
  constexpr std::size_t begin = 148;
  constexpr std::size_t end = 156;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool own = i >= begin && i < end;
    sum += static_cast<unsigned char>(own ? ' ' : header[i]);
  }
  return number_in(header.substr(begin, end - begin)) == sum;
}

void require_uncompressed(const TarArchive& archive, Window& window) {
  struct Magic {
    std::string_view bytes;
    const char* name;
  };
  static constexpr std::array known{Magic{"\x1F\x8B", "gzip"}, Magic{"BZh", "bzip2"},
                                    Magic{"\xFD\x37zXZ", "xz"}, Magic{"\x28\xB5\x2F\xFD", "zstd"}};
  const std::string_view start =
      window.at(archive.begin, std::min<std::uint64_t>(6, archive.end - archive.begin));
  for (const Magic& magic : known) {
    if (!start.starts_with(magic.bytes)) continue;
    fail(ExitStatus::bad_input,
         "{} is compressed by {} (its images are read in random order, without unpacking); "
         "decompress it",
         archive.path, magic.name);
  }
}

std::string name_in(std::string_view header) {
  const std::string_view name = until_zero(header.substr(0, 100));
  const std::string_view prefix = until_zero(header.substr(345, 155));
  // GNU's format, "ustar ", has other fields in the place of the prefix.
  const bool has_prefix = header.substr(257, 6) == std::string_view("ustar\0", 6);
  if (!has_prefix || prefix.empty()) return std::string(name);
  return fmt::format("{}/{}", prefix, name);
}

/// What the next member's header cannot hold.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
};

/// Reads pax records, "LENGTH KEY=VALUE\n". Returns false if they are damaged.
bool read_pax(std::string_view records, Extension& extension) {
  while (!records.empty()) {
    std::size_t length = 0;
    const auto [end, error] =
        std::from_chars(records.data(), records.data() + records.size(), length);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc{} || length > records.size() || length < digits + 2 ||
        records[digits] != ' ' || records[length - 1] != '\n') {
      return false;
    }
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") extension.name = until_zero(value);
    if (key == "size") {
      extension.size = parse_number<std::uint64_t>(value);
      if (!extension.size) return false;
    }
    if (key.starts_with("GNU.sparse.")) return false;
    records.remove_prefix(length);
  }
  return true;
}

bool is_zero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

/// An archive ends with two blocks of zeros, and then zeros to fill a record.
void require_end(const TarArchive& archive, Window& window, std::uint64_t offset) {
  if (archive.end - offset < 2 * block_bytes) {
    damaged(archive, offset, "it ends after one block of zeros, and a whole archive after two");
  }
  if (!is_zero(window.at(offset + block_bytes, block_bytes))) {
    damaged(archive, offset, "a block of zeros is followed by something else");
  }
  constexpr std::uint64_t piece = 4096;
  for (std::uint64_t at = offset + 2 * block_bytes; at < archive.end; at += piece) {
    if (is_zero(window.at(at, std::min(piece, archive.end - at)))) continue;
    fail(ExitStatus::bad_input,
         "{} goes on after its end at byte {} (archives joined by cat?); give each archive as a "
         "file "
         "of its own",
         archive.path, offset - archive.begin);
  }
}

/// The name of what is no regular file; empty for one.
const char* special_type(char type) {
  switch (type) {
    case '\0':
    case '0':
    case '7':
      return "";
    case '1':
      return "a hard link";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
      return "a device";
    case '6':
      return "a FIFO";
    default:
      return "an entry of unknown type";
  }
}

}  // namespace

void for_each_member(const TarArchive& archive, FunctionRef<void(const TarMember&)> visit) {
  if (archive.end == archive.begin) {
    fail(ExitStatus::bad_input,
         "{} is empty (an archive has at least two blocks of zeros); copy it again", archive.path);
  }
  Window window(archive);
  require_uncompressed(archive, window);
  Extension extension;
  for (std::uint64_t offset = archive.begin; offset < archive.end;) {
    if (archive.end - offset < block_bytes) damaged(archive, offset, "it ends in a header");
    // A copy: reading a long name moves the window.
    const std::string header(window.at(offset, block_bytes));
    if (is_zero(header)) {
      require_end(archive, window, offset);
      return;
    }
    if (!has_good_checksum(header)) {
      if (offset != archive.begin) damaged(archive, offset, "a header has a wrong checksum");
      fail(ExitStatus::bad_input,
           "{} is no tar archive (its first header has a wrong checksum); check the path",
           archive.path);
    }
    const char type = header[156];
    const auto size_field = number_in(std::string_view(header).substr(124, 12));
    if (!size_field) damaged(archive, offset, "a header has no size");
    const bool is_extension = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    const std::uint64_t size = is_extension ? *size_field : extension.size.value_or(*size_field);
    const std::uint64_t begin = offset + block_bytes;
    if (size > max_size || size > archive.end - begin) {
      damaged(archive, offset, "a file in it is longer than the rest of the archive");
    }
    offset = begin + (size + block_bytes - 1) / block_bytes * block_bytes;

    if (is_extension) {
      if (size > max_extension_bytes) damaged(archive, begin, "a name has more than 1 MiB");
      const std::string_view text = window.at(begin, size);
      if (type == 'L') extension.name = until_zero(text);
      if (type == 'x' && !read_pax(text, extension)) {
        damaged(archive, begin, "a pax header is damaged, or of a sparse file");
      }
      continue;
    }
    if (type == 'S') damaged(archive, begin, "it has a sparse file, which cannot be read");
    std::string name = extension.name ? *extension.name : name_in(header);
    extension = {};
    // Before POSIX, folders were files whose names end with a slash.
    if (type == '5' || name.ends_with('/')) continue;
    visit({.name = std::move(name), .offset = begin, .bytes = size, .special = special_type(type)});
  }
  damaged(archive, archive.end, "it ends without the two blocks of zeros of a whole archive");
}

}  // namespace lockstep
