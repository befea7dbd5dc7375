#pragma once

#include <algorithm>
#include <cstddef>
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

}  // namespace lockstep::doctor
