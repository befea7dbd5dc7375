#pragma once

#include <string>

namespace lockstep {

/// SHA-256 of a file's bytes in hexadecimal, as `sha256sum` prints it. Error as open_input(), and
/// Error(status_of_read_failure()) if it cannot be read.
[[nodiscard]] std::string sha256_of_file(const std::string& path);

}  // namespace lockstep
