#include "data/archive_file.hpp"
#include "data/image_list.hpp"
#include "data/tar_archive.hpp"

#include "fuzz.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace lockstep::fuzz {
namespace {

/// Gives each block the checksum of a header, which libFuzzer would not find.
void add_checksums(std::vector<std::uint8_t>& file) {
  for (std::size_t block = 0; block + 512 <= file.size(); block += 512) {
    std::uint8_t* header = file.data() + block;
    if (std::all_of(header, header + 512, [](std::uint8_t byte) { return byte == 0; })) continue;
    std::fill_n(header + 148, 8, std::uint8_t{' '});
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += header[i];
    char text[8];
    std::snprintf(text, sizeof text, "%06o", sum);
    std::copy_n(text, 7, header + 148);
  }
}

void check(bool holds) {
  if (!holds) __builtin_trap();
}

/// Visits all files, also those of archives within.
void walk(const std::vector<std::uint8_t>& file, std::uint64_t begin, std::uint64_t end,
          int depth) {
  const auto read = [&](std::uint64_t offset, std::span<std::byte> bytes) {
    check(offset >= begin && offset + bytes.size() <= end);
    std::copy_n(reinterpret_cast<const std::byte*>(file.data()) + offset, bytes.size(),
                bytes.begin());
  };
  for_each_member(
      {.path = "input", .begin = begin, .end = end, .read = read}, [&](const TarMember& member) {
        check(member.offset >= begin && member.bytes <= end - member.offset);
        check(member.name.find('\0') == std::string::npos);
        if (depth < 2) {
          accepts([&] { walk(file, member.offset, member.offset + member.bytes, depth + 1); });
        }
      });
}

}  // namespace

void run(Bytes bytes) {
  static const Scratch scratch;
  if (bytes.empty()) return;
  std::vector<std::uint8_t> file(bytes.begin() + 1, bytes.end());
  if ((bytes[0] & 1) != 0) add_checksums(file);
  accepts([&] { walk(file, 0, file.size(), 0); });
  accepts([&] {
    const ImageList list =
        list_samples(ArchiveFile(scratch.write("a.tar", file)), 0, OnBad::skip).images;
    for (std::int64_t i = 0; i < list.size(); ++i) {
      check(list[i].offset + list[i].bytes <= file.size() && list[i].label >= 0);
    }
  });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
