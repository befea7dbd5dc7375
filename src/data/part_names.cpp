#include "part_names.hpp"

#include "image_kind.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

namespace lockstep {
namespace {

template <std::size_t size>
std::optional<int> place_in(const std::array<std::string_view, size>& words,
                            std::string_view name) {
  const auto found = std::find(words.begin(), words.end(), lower_case(name));
  if (found == words.end()) return std::nullopt;
  return static_cast<int>(found - words.begin());
}

[[noreturn]] void refuse_both(const std::string& where, const std::string& one,
                              const std::string& other) {
  fail(
      ExitStatus::bad_input,
      "{} holds {} and {} (both are names of one part, and only one can be packed); rename one, or "
      "give one of them as --input",
      where, one, other);
}

}  // namespace

std::optional<int> training_part(std::string_view name) {
  return place_in(std::array<std::string_view, 2>{"train", "training"}, name);
}

std::optional<int> evaluation_part(std::string_view name) {
  return place_in(
      std::array<std::string_view, 6>{"val", "valid", "validation", "dev", "test", "testing"},
      name);
}

std::string part_word_in(std::string_view name) {
  std::string letters = lower_case(name);
  std::replace_if(
      letters.begin(), letters.end(), [](char c) { return c < 'a' || c > 'z'; }, ' ');
  std::istringstream words(letters);
  std::string last;
  for (std::string word; words >> word;) {
    if (training_part(word) || evaluation_part(word)) last = word;
  }
  return last;
}

LikeParts like_parts(std::span<const std::string> names) {
  LikeParts found;
  for (const std::string& name : names) {
    const std::string word = part_word_in(name);
    if (found.train.empty() && training_part(word)) found.train = name;
    if (found.val.empty() && evaluation_part(word)) found.val = name;
  }
  return found;
}

std::string PartNames::note() const {
  if (!val || (unused.empty() && *val == "val")) return {};
  return *val + " becomes split val" +
         (unused.empty() ? ""
                         : fmt::format("; {} {} left out", fmt::join(unused, " and "),
                                       unused.size() == 1 ? "is" : "are"));
}

PartNames find_parts(const std::string& where, std::span<const std::string> names) {
  PartNames parts;
  std::map<int, std::string> evaluation;
  for (const std::string& name : names) {
    if (training_part(name)) {
      if (parts.train) refuse_both(where, *parts.train, name);
      parts.train = name;
    } else if (const auto place = evaluation_part(name)) {
      const auto [earlier, is_new] = evaluation.emplace(*place, name);
      if (!is_new) refuse_both(where, earlier->second, name);
    }
  }
  for (const auto& [place, name] : evaluation) {
    if (!parts.val) {
      parts.val = name;
    } else {
      parts.unused.push_back(name);
    }
  }
  return parts;
}

}  // namespace lockstep
