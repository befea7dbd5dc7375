#include "lockstep/core/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

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
#define LOCKSTEP_CRC32C_INSTRUCTION __attribute__((target("sse4.2")))
bool has_instruction() noexcept {
  return __builtin_cpu_supports("sse4.2") != 0;
}
LOCKSTEP_CRC32C_INSTRUCTION inline std::uint32_t add(std::uint32_t crc,
                                                     std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, word));
}
LOCKSTEP_CRC32C_INSTRUCTION inline std::uint32_t add(std::uint32_t crc,
                                                     std::uint8_t byte) noexcept {
  return __builtin_ia32_crc32qi(crc, byte);
}
#elif defined(__aarch64__)
#define LOCKSTEP_CRC32C_INSTRUCTION __attribute__((target("+crc")))
bool has_instruction() noexcept {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
LOCKSTEP_CRC32C_INSTRUCTION inline std::uint32_t add(std::uint32_t crc,
                                                     std::uint64_t word) noexcept {
  return __crc32cd(crc, word);
}
LOCKSTEP_CRC32C_INSTRUCTION inline std::uint32_t add(std::uint32_t crc,
                                                     std::uint8_t byte) noexcept {
  return __crc32cb(crc, byte);
}
#endif

#if defined(LOCKSTEP_CRC32C_INSTRUCTION)
LOCKSTEP_CRC32C_INSTRUCTION std::uint32_t by_instruction(const std::byte* data, std::size_t size,
                                                         std::uint32_t crc) noexcept {
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    crc = add(crc, word);
  }
  for (; size > 0; ++data, --size) crc = add(crc, std::to_integer<std::uint8_t>(*data));
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) noexcept {
#if defined(LOCKSTEP_CRC32C_INSTRUCTION)
  static const bool uses_instruction = has_instruction();
  if (uses_instruction) return ~by_instruction(bytes.data(), bytes.size(), ~previous);
#endif
  return ~by_table(bytes.data(), bytes.size(), ~previous);
}

std::uint32_t crc32c(std::string_view text, std::uint32_t previous) noexcept {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())), previous);
}

}  // namespace lockstep
