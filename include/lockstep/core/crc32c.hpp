#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// CRC-32C (Castagnoli, reflected 0x82F63B78), as in RFC 3720 section B.4. `previous` continues an
/// earlier result: crc32c(b, crc32c(a)) is the checksum of a followed by b.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t previous = 0) noexcept;
[[nodiscard]] std::uint32_t crc32c(std::string_view text, std::uint32_t previous = 0) noexcept;

}  // namespace lockstep
