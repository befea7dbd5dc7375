#include "lockstep/core/escape.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace lockstep {
namespace {

struct Character {
  std::size_t bytes = 1;
  char32_t code = 0;
  bool valid = false;
};

/// The first character of `text`, which is not empty, in UTF-8.
Character first_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return {.bytes = 1, .code = first, .valid = true};
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  char32_t code = first & (0x7fU >> bytes);
  for (const char next : text.substr(1, bytes - 1)) {
    const auto byte = static_cast<unsigned char>(next);
    if ((byte & 0xc0U) != 0x80) return {};
    code = code << 6U | (byte & 0x3fU);
  }
  constexpr std::array<char32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {.bytes = bytes, .code = code, .valid = true};
}

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

bool changes_direction(char32_t code) {
  return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

/// Without the joiners, which Indic scripts and emoji need.
bool is_invisible(char32_t code) {
  return code == 0xad || code == 0x200b || (code >= 0x2060 && code <= 0x2064) || code == 0xfeff;
}

bool is_harmful(char32_t code) {
  return is_control(code) || changes_direction(code) || is_invisible(code);
}

std::string escape(std::string_view text, std::string_view kept) {
  std::string result;
  while (!text.empty()) {
    const Character first = first_character(text);
    const std::string_view bytes = text.substr(0, first.bytes);
    if ((first.valid && !is_harmful(first.code)) ||
        kept.find(text.front()) != std::string_view::npos) {
      result += bytes;
    } else {
      for (const char byte : bytes) {
        fmt::format_to(std::back_inserter(result), "\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    text.remove_prefix(first.bytes);
  }
  return result;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character first = first_character(text);
    if (!first.valid) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

std::string escape_controls(std::string_view text) {
  return escape(text, "\n\t");
}

std::string escape_line(std::string_view text) {
  return escape(text, {});
}

std::string escape_json(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  while (!json.empty()) {
    const Character first = first_character(json);
    if (first.valid && is_harmful(first.code)) {
      fmt::format_to(std::back_inserter(result), "\\u{:04x}",
                     static_cast<std::uint32_t>(first.code));
    } else {
      result += json.substr(0, first.bytes);
    }
    json.remove_prefix(first.bytes);
  }
  return result;
}

}  // namespace lockstep
