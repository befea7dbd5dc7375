#include "lockstep/data/class_names.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <unordered_map>

namespace lockstep {
namespace {

struct Class {
  std::int64_t number = 0;  ///< the first with this name
  bool is_unique = true;
};
using ClassIndex = std::unordered_map<std::string, Class>;

ClassIndex index_of(const std::vector<std::string>& names) {
  ClassIndex index;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto [found, is_new] = index.try_emplace(
        names[i], Class{.number = static_cast<std::int64_t>(i), .is_unique = !names[i].empty()});
    if (!is_new) found->second.is_unique = false;
  }
  return index;
}

std::vector<std::string> only_in(const ClassNames& one, const ClassIndex& other) {
  std::vector<std::string> names;
  for (const std::string& name : one.names) {
    if (!other.contains(name)) names.push_back(quoted_class(name));
  }
  return names;
}

/// `only w.h5 has "cat": 1 of its 3`, or nothing.
void add_missing(std::vector<std::string>& parts, const ClassNames& one,
                 const std::vector<std::string>& missing) {
  constexpr std::size_t most = 3;
  if (missing.empty()) return;
  const std::size_t shown = std::min(missing.size(), most);
  parts.push_back(fmt::format(
      "only {} has {}{}: {} of its {}", one.of,
      fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      missing.size() > most ? ", ..." : "", missing.size(), one.names.size()));
}

const char* remedy(ClassUse use) {
  switch (use) {
    case ClassUse::evaluation:
      return "pack the data with the same class folders or --class-names";
    case ClassUse::initial_weights:
      return "pack the data with the same class folders or --class-names, or train a new head with "
             "--init-head new";
    case ClassUse::resume:
      return "resume with the data of the run, or give another --run-dir";
  }
  return "";
}

std::string note_of(const ClassNames& network, const ClassNames& data,
                    const ClassNumbering& numbering) {
  std::size_t moved = 0;
  std::string example;
  for (std::size_t i = 0; i < numbering.size(); ++i) {
    if (numbering[i] == static_cast<std::int64_t>(i)) continue;
    if (moved++ == 0) {
      example = fmt::format("{} is {}, not {}", quoted_class(data.names[i]), numbering[i], i);
    }
  }
  return fmt::format("{} has {} of the {} classes of {}{}; labels are matched by name", data.of,
                     data.names.size(), network.names.size(), network.of,
                     moved == 0 ? "" : fmt::format(", {} with other numbers ({})", moved, example));
}

}  // namespace

ClassMatch match_classes(const ClassNames& network, const ClassNames& data, ClassUse use) {
  if (network.names == data.names) return {};
  if (network.names.empty() || data.names.empty()) {
    const bool of_data = data.names.empty();
    return {.numbering = {},
            .note = fmt::format("{} has no class names, {} has {}; labels are matched by number",
                                of_data ? data.of : network.of, of_data ? network.of : data.of,
                                std::max(network.names.size(), data.names.size()))};
  }
  const ClassIndex outputs = index_of(network.names);
  const ClassIndex labels = index_of(data.names);
  const std::vector<std::string> unknown = only_in(data, outputs);
  const std::vector<std::string> absent = only_in(network, labels);
  if (!unknown.empty() || (use != ClassUse::evaluation && !absent.empty())) {
    std::vector<std::string> parts;
    add_missing(parts, data, unknown);
    add_missing(parts, network, absent);
    fail(ExitStatus::bad_input, "{} and {} have different classes ({}); {}", data.of, network.of,
         fmt::join(parts, "; "), remedy(use));
  }
  ClassMatch match;
  for (const std::string& name : data.names) {
    const Class& output = outputs.at(name);
    if (!output.is_unique || !labels.at(name).is_unique) {
      fail(ExitStatus::bad_input,
           "{} and {} list their classes differently, and {} is no name of one class alone (labels "
           "cannot be matched by name); {}",
           data.of, network.of, quoted_class(name), remedy(use));
    }
    match.numbering.push_back(output.number);
  }
  match.note = note_of(network, data, match.numbering);
  return match;
}

std::string quoted_class(const std::string& name) {
  constexpr std::size_t most = 40;
  std::size_t end = std::min(name.size(), most);
  while (end < name.size() && end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0U) == 0x80) {
    --end;
  }
  std::string text = name.substr(0, end);
  std::ranges::replace(text, '\n', ' ');
  return fmt::format("\"{}{}\"", text, end < name.size() ? "..." : "");
}

std::vector<std::string> as_utf8(const std::vector<std::string>& names) {
  std::vector<std::string> valid;
  for (const std::string& name : names) {
    valid.push_back(is_utf8(name) ? name : escape_line(name));
  }
  return valid;
}

}  // namespace lockstep
