#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// A field of CSV: escape_line(), quoted where RFC 4180 requires it. A text that a spreadsheet
/// would take for a formula, since it begins with = + - or @, gets an apostrophe before it; a
/// number stays one. So does a text that begins with apostrophes and then one of these, so that
/// csv_text() is exact.
[[nodiscard]] std::string csv_field(std::string_view text);

/// The text of a field that csv_field() made and that is unquoted: without that apostrophe.
[[nodiscard]] std::string_view csv_text(std::string_view field);

}  // namespace lockstep
