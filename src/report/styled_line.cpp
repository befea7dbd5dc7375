#include "lockstep/report/styled_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cwchar>

namespace lockstep::report {
namespace {

struct Character {
  std::size_t bytes;
  int columns;  ///< below 1: not printable
};

/// The first character of `text`, which is not empty.
Character first_character(std::string_view text, Charset charset) {
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < 0x80) return {.bytes = 1, .columns = byte >= 0x20 && byte != 0x7f ? 1 : 0};
  if (charset == Charset::ascii) {
    const auto* const end = std::ranges::find_if(text.substr(1), [](char next) {
      return (static_cast<unsigned char>(next) & 0xc0) != 0x80;
    });
    return {.bytes = static_cast<std::size_t>(end - text.begin()), .columns = 0};
  }
  std::mbstate_t state{};
  wchar_t character = 0;
  const std::size_t bytes = std::mbrtowc(&character, text.data(), text.size(), &state);
  if (bytes > text.size()) return {.bytes = 1, .columns = 0};
  return {.bytes = bytes, .columns = ::wcwidth(character)};
}

}  // namespace

std::string printable(std::string_view text, Charset charset) {
  std::string result;
  while (!text.empty()) {
    const Character first = first_character(text, charset);
    result += first.columns > 0 ? text.substr(0, first.bytes) : "?";
    text.remove_prefix(first.bytes);
  }
  return result;
}

std::string cut(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  while (end < text.size()) {
    const Character next = first_character(text.substr(end), Charset::unicode);
    const auto width = static_cast<std::size_t>(std::max(next.columns, 0));
    if (width > columns) break;
    columns -= width;
    end += next.bytes;
  }
  return std::string(text.substr(0, end));
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character first = first_character(text, Charset::unicode);
    columns += static_cast<std::size_t>(std::max(first.columns, 0));
    text.remove_prefix(first.bytes);
  }
  return columns;
}

std::size_t columns_of(const StyledLine& line) {
  std::size_t columns = 0;
  for (const Span& span : line) columns += columns_of(span.text);
  return columns;
}

StyledLine cut(StyledLine line, std::size_t columns) {
  for (Span& span : line) {
    span.text = cut(span.text, columns);
    columns -= columns_of(span.text);
  }
  return line;
}

std::string render(const StyledLine& line, Colors colors) {
  constexpr std::array codes{"", "1", "2", "32", "33", "31", "36", "34", "35", "31", "33"};
  std::string text;
  for (const Span& span : line) {
    if (colors == Colors::no || span.style == Style::plain || span.text.empty()) {
      text += span.text;
    } else {
      text +=
          fmt::format("\x1b[{}m{}\x1b[m", codes[static_cast<std::size_t>(span.style)], span.text);
    }
  }
  return text;
}

}  // namespace lockstep::report
