#include "lockstep/core/crc32c.hpp"

#include <array>
#include <cstring>

namespace lockstep {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
    tables[0][i] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFFu];
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

std::uint32_t by_table(const std::byte* data, std::size_t size, std::uint32_t crc) noexcept {
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][(word >> (8 * i)) & 0xFFu];
  }
  for (; size > 0; ++data, --size) {
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<std::uint32_t>(*data)) & 0xFFu];
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const std::byte* data,
                                                               std::size_t size,
                                                               std::uint32_t crc) noexcept {
  std::uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++data, --size) {
    crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(*data));
  }
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~by_instruction(bytes.data(), bytes.size(), ~previous);
#endif
  return ~by_table(bytes.data(), bytes.size(), ~previous);
}

std::uint32_t crc32c(std::string_view text, std::uint32_t previous) noexcept {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())), previous);
}

}  // namespace lockstep
