#pragma once

#include "label_file.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::string_view separators = " \t,";

/// A line of a file that is not blank.
struct Line {
  std::int64_t number;  ///< from 1
  std::string_view text;
};
/// Error(bad_input) if there is none.
[[nodiscard]] std::vector<Line> lines_of(const NamedText& file);

struct Fields {
  std::string_view first;
  std::string_view second;  ///< the rest of the line
};
/// Splits at the first separator. Error(bad_input) if there is none; `expected`: what lines are.
[[nodiscard]] Fields split_first(const NamedText& file, const Line& line,
                                 std::string_view expected);

[[nodiscard]] std::string_view first_word(std::string_view text);
/// Without separators and quotes around it.
[[nodiscard]] std::string_view field(std::string_view text);
/// nullopt unless all of the text is a whole number.
[[nodiscard]] std::optional<std::int64_t> number_in(std::string_view text);
/// Among `classes`, which are sorted.
[[nodiscard]] std::optional<std::int32_t> index_of(std::string_view name,
                                                   std::span<const std::string> classes);

}  // namespace lockstep
