#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

namespace lockstep {

/// "rank 1 (node1), rank 4 (node2)", for messages: at most eight names, then "and 3 more".
[[nodiscard]] inline std::string listed(std::span<const std::string> names) {
  constexpr std::size_t most = 8;
  const auto first = names.first(std::min(names.size(), most));
  return fmt::format("{}{}", fmt::join(first, ", "),
                     names.size() > most ? fmt::format(" and {} more", names.size() - most) : "");
}

}  // namespace lockstep
