#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parse_number.hpp"
#include "lockstep/data/shard_file.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

namespace lockstep {
namespace {

/// Accepts five to nine digits; nullopt for anything else.
std::optional<std::int64_t> shard_number(std::string_view digits) {
  if (digits.size() < 5 || digits.size() > 9 || digits.starts_with('-')) return std::nullopt;
  return parse_number<std::int64_t>(digits);
}

/// What to do about a data set without all shards.
std::string suggestion(const std::string& directory, const std::string& otherwise) {
  std::error_code ignored;
  const auto unfinished = std::filesystem::path(directory) / unfinished_packing;
  if (!std::filesystem::exists(unfinished, ignored)) return otherwise;
  return "its packing has not finished: run the same lockstep pack again";
}

std::string shard_file_name(const ShardName& name) {
  return fmt::format("{}-{:05}-of-{:05}.h5", name.split, name.number, name.count);
}

}  // namespace

std::optional<ShardName> parse_shard_name(std::string_view file_name) {
  constexpr std::string_view ending = ".h5";
  constexpr std::string_view middle = "-of-";
  if (!file_name.ends_with(ending)) return std::nullopt;
  file_name.remove_suffix(ending.size());
  const std::size_t of = file_name.rfind(middle);
  if (of == std::string_view::npos) return std::nullopt;
  const auto count = shard_number(file_name.substr(of + middle.size()));
  const std::string_view left = file_name.substr(0, of);
  const std::size_t dash = left.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return std::nullopt;
  const auto number = shard_number(left.substr(dash + 1));
  if (!number || !count) return std::nullopt;
  return ShardName{.split = std::string(left.substr(0, dash)), .number = *number, .count = *count};
}

std::vector<std::string> list_shards(const std::string& directory, const std::string& split) {
  std::map<std::int64_t, std::string> found;
  std::optional<std::int64_t> count;
  for (const std::string& file : names_in(directory, "give a directory of shards")) {
    const auto name = parse_shard_name(file);
    if (!name || name->split != split) continue;
    if (name->number >= name->count) {
      fail(ExitStatus::bad_input, "{}/{} is number {} of {} (numbers begin at 0); rename it",
           directory, file, name->number, name->count);
    }
    if (count && *count != name->count) {
      const auto& [first, second] = std::minmax(found.begin()->second, file);
      fail(ExitStatus::bad_input,
           "{} holds {} and {} (shards of one split have one count); move one of the two sets to "
           "another directory",
           directory, first, second);
    }
    count = name->count;
    if (!found.emplace(name->number, file).second) {
      fail(ExitStatus::bad_input,
           "{} holds {} and {} (the same number twice); move one of them away", directory,
           found[name->number], file);
    }
  }
  if (found.empty()) {
    fail(ExitStatus::no_input, "{} holds no shards of split {} (names like {}); {}", directory,
         split, shard_file_name({.split = split, .number = 0, .count = 1}),
         suggestion(directory, "make them with lockstep pack"));
  }
  std::vector<std::string> names;
  for (const auto& [number, file] : found) {
    const auto expected = static_cast<std::int64_t>(names.size());
    if (number != expected) break;
    names.push_back(file);
  }
  const auto present = static_cast<std::int64_t>(names.size());
  if (present != *count) {
    fail(ExitStatus::no_input, "{}/{} is missing ({} of {} shards of split {} are there); {}",
         directory, shard_file_name({.split = split, .number = present, .count = *count}),
         found.size(), *count, split, suggestion(directory, "copy the data set again"));
  }
  return names;
}

bool has_split(const std::string& directory, const std::string& split) {
  return std::ranges::any_of(names_in(directory, "give a directory of shards"),
                             [&](const std::string& file) {
                               const auto name = parse_shard_name(file);
                               return name && name->split == split;
                             });
}

}  // namespace lockstep
