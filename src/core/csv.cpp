#include "lockstep/core/csv.hpp"

#include "lockstep/core/escape.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <system_error>

namespace lockstep {
namespace {

bool is_number(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec != std::errc::invalid_argument && read.ptr == end;
}

/// Also with apostrophes before it, or in full width, which some spreadsheets read alike.
bool looks_like_formula(std::string_view text) {
  constexpr std::array<std::string_view, 8> starts{
      "=", "+", "-", "@", "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0"};
  text.remove_prefix(std::min(text.find_first_not_of('\''), text.size()));
  return std::ranges::any_of(starts, [&](auto start) { return text.starts_with(start); });
}

}  // namespace

std::string csv_field(std::string_view text) {
  std::string shown = escape_line(text);
  if (looks_like_formula(shown) && !is_number(shown)) shown.insert(0, 1, '\'');
  if (shown.find_first_of(",\"") == std::string::npos) return shown;
  std::string field = "\"";
  for (const char c : shown) field.append(c == '"' ? 2 : 1, c);
  return field + '"';
}

std::string_view csv_text(std::string_view field) {
  const bool has_mark = field.starts_with('\'') && looks_like_formula(field);
  return has_mark ? field.substr(1) : field;
}

}  // namespace lockstep
