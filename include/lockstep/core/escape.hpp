#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// `text` with \xHH in place of what could control a terminal or is not UTF-8: control characters
/// other than line breaks and tabs, characters that change the direction of text, invalid bytes.
[[nodiscard]] std::string escape_controls(std::string_view text);

}  // namespace lockstep
