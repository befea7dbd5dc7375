#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::doctor {

/// Factor by which a link, or a node's reading, may be slower than the median. Nodes of one machine
/// differ by less; shared switches and busy cores cause factors of two.
inline constexpr double slow_factor = 4;

/// 0 if `values` is empty.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// " (the best of 3 measurements: 90 MB/s, 100 MB/s, 80 MB/s)"; empty for fewer than two values.
template <typename Value, typename Text>
[[nodiscard]] std::string figures(const std::vector<Value>& values, Text text) {
  if (values.size() < 2) return "";
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const Value& value : values) texts.push_back(text(value));
  return fmt::format(" (the best of {} measurements: {})", texts.size(), fmt::join(texts, ", "));
}

}  // namespace lockstep::doctor
