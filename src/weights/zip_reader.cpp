#include "zip_reader.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/input_file.hpp"
#include "weight_readers.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::uint64_t end_bytes = 22;      // without a comment
constexpr std::uint64_t locator_bytes = 20;  // of the end of ZIP64
constexpr std::uint64_t end64_bytes = 56;
constexpr std::uint64_t central_bytes = 46;
constexpr std::uint64_t local_bytes = 30;
constexpr std::uint64_t most_comment = 0xFFFF;
constexpr std::uint64_t most_directory = std::uint64_t{64} << 20;
constexpr std::uint32_t in_zip64 = 0xFFFFFFFF;  ///< the real size or offset is elsewhere

class ZipReader final {
 public:
  ZipReader(const Descriptor& file, const std::string& path)
      : file_(file), path_(path), size_(size_of(file, path)) {}

  std::map<std::string, ZipPlace> entries() {
    find_directory();
    const std::string directory = read(begin_, bytes_);
    std::map<std::string, ZipPlace> all;
    for (std::string_view rest = directory; !rest.empty();) {
      auto [name, place] = next(rest);
      if (!all.emplace(name, place).second) {
        damaged(fmt::format("it has two entries {}", escape_line(name)));
      }
    }
    return all;
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const {
    fail(ExitStatus::bad_input,
         "{} is damaged ({}; it is a zip archive of {} bytes); copy or write it again", path_, what,
         size_);
  }

  std::string read(std::uint64_t begin, std::uint64_t bytes) const {
    if (begin > size_ || bytes > size_ - begin) damaged("a part lies beyond its end");
    std::string text = read_text(file_, path_, begin, bytes);
    if (text.size() != bytes) damaged("it ends too early");
    return text;
  }

  template <typename T>
  T field(std::string_view text, std::size_t offset) const {
    T value{};
    if (text.size() < offset + sizeof value) damaged("a header ends too early");
    std::memcpy(&value, text.data() + offset, sizeof value);
    return value;
  }

  void find_directory() {
    if (size_ < end_bytes) damaged("it has no directory");
    const std::uint64_t tail_begin = size_ - std::min(size_, end_bytes + most_comment);
    const std::string tail = read(tail_begin, size_ - tail_begin);
    const std::size_t at = tail.rfind("PK\x05\x06");
    if (at == std::string::npos || tail.size() - at < end_bytes) {
      damaged("it has no directory, which lies at the end");
    }
    const std::string_view end = std::string_view(tail).substr(at);
    bytes_ = field<std::uint32_t>(end, 12);
    begin_ = field<std::uint32_t>(end, 16);
    if (bytes_ == in_zip64 || begin_ == in_zip64 || field<std::uint16_t>(end, 10) == 0xFFFF) {
      find_zip64(tail_begin + at);
    }
    if (bytes_ > most_directory) damaged("its directory has more than 64 MiB");
  }

  void find_zip64(std::uint64_t end) {
    if (end < locator_bytes) damaged("it has no directory of ZIP64");
    const std::string locator = read(end - locator_bytes, locator_bytes);
    if (!locator.starts_with("PK\x06\x07")) damaged("it has no directory of ZIP64");
    const std::string end64 = read(field<std::uint64_t>(locator, 8), end64_bytes);
    if (!end64.starts_with("PK\x06\x06")) damaged("it has no directory of ZIP64");
    bytes_ = field<std::uint64_t>(end64, 40);
    begin_ = field<std::uint64_t>(end64, 48);
  }

  /// Takes an entry from the directory.
  std::pair<std::string, ZipPlace> next(std::string_view& rest) const {
    if (!rest.starts_with("PK\x01\x02")) damaged("its directory has no entry where one begins");
    const std::size_t name_bytes = field<std::uint16_t>(rest, 28);
    const std::size_t extra_bytes = field<std::uint16_t>(rest, 30);
    const std::size_t all =
        central_bytes + name_bytes + extra_bytes + field<std::uint16_t>(rest, 32);
    if (all > rest.size()) damaged("its directory ends too early");
    std::string name(rest.substr(central_bytes, name_bytes));
    ZipPlace place{.begin = field<std::uint32_t>(rest, 42),
                   .bytes = field<std::uint32_t>(rest, 24),
                   .crc32 = field<std::uint32_t>(rest, 16),
                   .is_compressed = field<std::uint16_t>(rest, 10) != 0};
    widen(rest.substr(central_bytes + name_bytes, extra_bytes), place);
    place.begin = content_of(place);
    const bool is_there = place.begin <= size_ && place.bytes <= size_ - place.begin;
    if (!is_there && !place.is_compressed) {
      damaged(fmt::format("{} lies beyond its end", escape_line(name)));
    }
    rest.remove_prefix(all);
    return {std::move(name), place};
  }

  /// Takes from the extra field of ZIP64 what 32 bits do not hold.
  void widen(std::string_view extra, ZipPlace& place) const {
    constexpr std::uint16_t zip64 = 1;
    constexpr std::size_t header = 4;
    while (extra.size() >= header) {
      const std::size_t bytes = field<std::uint16_t>(extra, 2);
      if (bytes > extra.size() - header) damaged("an extra field ends too early");
      if (field<std::uint16_t>(extra, 0) == zip64) {
        const std::string_view values = extra.substr(header, bytes);
        std::size_t at = 0;
        if (place.bytes == in_zip64) {
          place.bytes = field<std::uint64_t>(values, at);
          at += 2 * sizeof(std::uint64_t);  // and the compressed size
        }
        if (place.begin == in_zip64) place.begin = field<std::uint64_t>(values, at);
        return;
      }
      extra.remove_prefix(header + bytes);
    }
  }

  /// The content follows the local header, whose extra field may differ from the directory's.
  std::uint64_t content_of(const ZipPlace& place) const {
    const std::string header = read(place.begin, local_bytes);
    if (!header.starts_with("PK\x03\x04")) damaged("an entry is not where the directory says");
    return place.begin + local_bytes + field<std::uint16_t>(header, 26) +
           field<std::uint16_t>(header, 28);
  }

  const Descriptor& file_;
  const std::string& path_;
  std::uint64_t size_;
  std::uint64_t begin_ = 0;  ///< of the directory
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::map<std::string, ZipPlace> read_zip(const Descriptor& file, const std::string& path) {
  return ZipReader(file, path).entries();
}

}  // namespace lockstep
