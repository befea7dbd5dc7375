#include "zip_archive.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/little_endian.hpp"

#include <zlib.h>

#include <cstdint>
#include <limits>
#include <span>

namespace lockstep {
namespace {

constexpr std::uint64_t alignment = 64;
constexpr std::uint16_t version_needed = 10;      // 1.0: no compression
constexpr std::uint16_t first_of_january = 0x21;  // 1980

// Without ZIP64, these values of a size or count mean that the real one is elsewhere.
constexpr std::uint64_t size_limit = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t entry_limit = std::numeric_limits<std::uint16_t>::max();

std::string u16(std::size_t value) {
  return little_endian(static_cast<std::uint16_t>(value));
}
std::string u32(std::uint64_t value) {
  return little_endian(static_cast<std::uint32_t>(value));
}

std::uint32_t checksum(const FilePart& part) {
  // zlib takes a null pointer, as an empty view has, for a request to start again.
  const auto add = [](uLong crc, std::span<const std::byte> bytes) {
    if (bytes.empty()) return crc;
    return crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  };
  return static_cast<std::uint32_t>(add(add(0, std::as_bytes(std::span(part.bytes))), part.view));
}

/// What the local and the central header of an entry have in common.
std::string common_fields(const ZipEntry& entry) {
  const std::string size = u32(entry.content.size());
  return u16(version_needed) + u16(0) /* flags */ + u16(0) /* not compressed */ +
         u16(0) /* midnight */ + u16(first_of_january) + u32(checksum(entry.content)) + size +
         size + u16(entry.name.size());
}

/// The extra field that ends at a multiple of the alignment.
std::string padding(std::uint64_t begin) {
  constexpr std::uint64_t field_header = 4;
  const std::uint64_t zeros = (alignment - (begin + field_header) % alignment) % alignment;
  return "FB" + u16(zeros) + std::string(zeros, '\0');
}

std::string local_header(const ZipEntry& entry, const std::string& fields, std::uint64_t offset) {
  constexpr std::uint64_t fixed_size = 30;
  const std::string extra = padding(offset + fixed_size + entry.name.size());
  return "PK\x03\x04" + fields + u16(extra.size()) + entry.name + extra;
}

std::string central_header(const ZipEntry& entry, const std::string& fields, std::uint64_t offset) {
  return "PK\x01\x02" + u16(version_needed) + fields + u16(0) /* extra */ + u16(0) /* comment */ +
         u16(0) /* disk */ + u16(0) + u32(0) /* attributes */ + u32(offset) + entry.name;
}

std::string end_of_directory(std::size_t entries, std::uint64_t size, std::uint64_t offset) {
  return "PK\x05\x06" + u16(0) + u16(0) /* disks */ + u16(entries) + u16(entries) + u32(size) +
         u32(offset) + u16(0) /* comment */;
}

void require_fit(std::uint64_t size, std::size_t entries) {
  if (size < size_limit && entries < entry_limit) return;
  fail(ExitStatus::usage,
       "a zip archive of {} entries and {} bytes (without ZIP64 there are fewer than {}, and fewer "
       "than {} bytes); use --format safetensors",
       entries, size, entry_limit, size_limit);
}

}  // namespace

FileParts zip_archive(std::vector<ZipEntry> entries) {
  std::uint64_t content = 0;
  for (const ZipEntry& entry : entries) content += entry.content.size();
  require_fit(content, entries.size());  // before reading it all for checksums
  FileParts parts;
  std::string directory;
  std::uint64_t offset = 0;
  for (ZipEntry& entry : entries) {
    const std::string fields = common_fields(entry);
    std::string header = local_header(entry, fields, offset);
    directory += central_header(entry, fields, offset);
    offset += header.size() + entry.content.size();
    parts.push_back({.bytes = std::move(header)});
    parts.push_back(std::move(entry.content));
  }
  require_fit(offset + directory.size(), entries.size());
  const std::string end = end_of_directory(entries.size(), directory.size(), offset);
  parts.push_back({.bytes = directory + end});
  return parts;
}

}  // namespace lockstep
