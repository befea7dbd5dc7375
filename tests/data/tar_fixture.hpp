#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep::test {

struct TarEntry {
  std::string name;
  std::string bytes;
  char type = '0';
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string prefix = {};
  std::string size = {};  ///< field of 12 bytes; empty: that of `bytes`, in octal
};

/// A header, with its checksum, and the bytes up to the end of their last block.
[[nodiscard]] inline std::string tar_entry(const TarEntry& entry) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  const auto octal = [](std::uint64_t value, int digits) {
    std::string text(32, '\0');
    text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%0*llo", digits,
                                                       static_cast<unsigned long long>(value))));
    return text;
  };
  put(0, entry.name.substr(0, 100));
  put(100, "0000644");
  put(124, entry.size.empty() ? octal(entry.bytes.size(), 11) : entry.size);
  put(148, "        ");
  header[156] = entry.type;
  put(257, entry.magic);
  put(345, entry.prefix);
  std::uint64_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + std::string("\0 ", 2));
  const std::size_t padding = (512 - entry.bytes.size() % 512) % 512;
  return header + entry.bytes + std::string(padding, '\0');
}

/// The blocks at the end of an archive.
[[nodiscard]] inline std::string tar_end() {
  return std::string(1024, '\0');
}

}  // namespace lockstep::test
