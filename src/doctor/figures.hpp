#pragma once

#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace lockstep::doctor {

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
