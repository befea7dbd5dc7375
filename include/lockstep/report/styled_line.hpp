#pragma once

#include "lockstep/report/spark_line.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

enum class Style {
  plain,
  bold,
  dim,
  good,
  warning,
  bad,
  data,
  forward,
  backward,
  communication,
  optimizer
};

/// Text of one style, without control characters.
struct Span {
  std::string text;
  Style style = Style::plain;
};
using StyledLine = std::vector<Span>;

/// `text` as a terminal can show it without danger: `?` replaces control characters, bytes that are
/// not UTF-8, and characters without width; with Charset::ascii, all that is not ASCII. For
/// Charset::unicode the locale must be a UTF-8 one.
[[nodiscard]] std::string printable(std::string_view text, Charset charset);

/// Columns that printable text takes.
[[nodiscard]] std::size_t columns_of(std::string_view text);
[[nodiscard]] std::size_t columns_of(const StyledLine& line);

/// Cuts what does not fit into `columns`.
[[nodiscard]] std::string cut(std::string_view text, std::size_t columns);
[[nodiscard]] StyledLine cut(StyledLine line, std::size_t columns);

enum class Colors { no, yes };
/// Text for a terminal, with escape sequences only for colors.
[[nodiscard]] std::string render(const StyledLine& line, Colors colors);

}  // namespace lockstep::report
