#pragma once

#include "lockstep/core/file_path.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

inline constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 30;

/// The text of a UTF-8 file, by the same rules for all files that a user writes: without a byte
/// order mark, and with "\n" for "\r\n". Error(bad_input) for UTF-16 and UTF-32, for a zero byte,
/// and above max_text_bytes; as open_input() if it cannot be read or is no regular file.
[[nodiscard]] std::string read_text_file(const FilePath& path);

}  // namespace lockstep
