#pragma once

#include "lockstep/core/escape.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

/// All that commands print passes here, so that no name of a file, class or host and no text of a
/// stranger's file controls the terminal or looks like a line of the program's own.
namespace lockstep {

/// A text of several lines that the program composed. Only its line breaks and tabs are kept.
struct Lines {
  std::string_view text;
};

namespace detail {

/// escape_line() for texts; values of other types hold none.
template <typename Value>
decltype(auto) printable(const Value& value) {
  if constexpr (std::is_same_v<Value, Lines>) {
    return escape_controls(value.text);
  } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return escape_line(value);
  } else {
    return (value);
  }
}

template <typename... Values>
std::string format_values(fmt::string_view format, const Values&... values) {
  return fmt::vformat(format, fmt::make_format_args(values...));
}

void print_escaped(std::FILE* file, std::string_view text);

/// What a text is formatted as.
template <typename Value>
using Printed = std::conditional_t<std::is_same_v<std::remove_cvref_t<Value>, Lines> ||
                                       std::is_convertible_v<Value, std::string_view>,
                                   std::string, std::remove_cvref_t<Value>>;

}  // namespace detail

/// Prints to standard output: the format as it is, texts with escape_line(), Lines with
/// escape_controls().
template <typename... Values>
void print_out(fmt::format_string<detail::Printed<Values>...> format, const Values&... values) {
  detail::print_escaped(stdout, detail::format_values(format, detail::printable(values)...));
}

/// The same to standard error, after what standard output has.
template <typename... Values>
void print_err(fmt::format_string<detail::Printed<Values>...> format, const Values&... values) {
  std::fflush(stdout);
  detail::print_escaped(stderr, detail::format_values(format, detail::printable(values)...));
}

/// For text that a file or another program reads again: exact, unless standard output is a
/// terminal.
void print_exact(std::string_view text);

}  // namespace lockstep
