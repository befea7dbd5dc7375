#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// SHA-256 of bytes in hexadecimal.
[[nodiscard]] std::string sha256_of(std::string_view text);

/// SHA-256 of a file's bytes in hexadecimal, as `sha256sum` prints it. Error as open_input(), and
/// Error(status_of_read_failure()) if it cannot be read.
[[nodiscard]] std::string sha256_of_file(const std::string& path);

}  // namespace lockstep
