#include "lockstep/core/csv.hpp"

#include "lockstep/core/escape.hpp"

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

/// Also with apostrophes before it.
bool looks_like_formula(std::string_view text) {
  const std::size_t first = text.find_first_not_of('\'');
  return first != std::string_view::npos &&
         std::string_view("=+-@").find(text[first]) != std::string_view::npos;
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
