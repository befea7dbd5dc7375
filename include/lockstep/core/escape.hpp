#pragma once

#include <string>
#include <string_view>

namespace lockstep {

[[nodiscard]] bool is_utf8(std::string_view text);

/// `text` with \xHH in place of what could control a terminal, or cannot be seen, or is not UTF-8:
/// control characters other than line breaks and tabs, characters that change the direction of text
/// or are invisible, invalid bytes. For text of several lines.
[[nodiscard]] std::string escape_controls(std::string_view text);

/// The same for one line or a name, whose line breaks and tabs are escaped too.
[[nodiscard]] std::string escape_line(std::string_view text);

/// JSON of one line that means the same, with \uHHHH in place of such characters.
[[nodiscard]] std::string escape_json(std::string_view json);

}  // namespace lockstep
