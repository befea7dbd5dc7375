#include "label_lines.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/parse_number.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace

std::vector<Line> lines_of(const NamedText& file) {
  std::vector<Line> lines;
  std::string_view rest = file.text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (const std::string_view text = trimmed(rest.substr(0, end)); !text.empty()) {
      lines.push_back({.number = number, .text = text});
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (lines.empty()) {
    fail(ExitStatus::bad_input, "{} is empty (it holds no line); check the path", file.path);
  }
  return lines;
}

std::optional<std::int64_t> number_in(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

Fields split_first(const NamedText& file, const Line& line, std::string_view expected) {
  const std::size_t end = line.text.find_first_of(separators);
  const std::size_t second = line.text.find_first_not_of(separators, end);
  if (end == std::string_view::npos || second == std::string_view::npos) {
    fail(ExitStatus::bad_input, "{}: line {} is '{}' (lines are {}); check the file", file.path,
         line.number, line.text, expected);
  }
  return {.first = line.text.substr(0, end), .second = line.text.substr(second)};
}

std::optional<std::int32_t> index_of(std::string_view name, std::span<const std::string> classes) {
  const auto found = std::lower_bound(classes.begin(), classes.end(), name);
  if (found == classes.end() || *found != name) return std::nullopt;
  return static_cast<std::int32_t>(found - classes.begin());
}

std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find_first_of(separators));
}

std::string_view field(std::string_view text) {
  const std::size_t first = text.find_first_not_of(separators);
  if (first == std::string_view::npos) return {};
  text = text.substr(first, text.find_last_not_of(separators) - first + 1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

}  // namespace lockstep
