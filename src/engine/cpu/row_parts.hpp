#pragma once

#include "../vector_loop.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep::cpu {

// Sums over the rows of a matrix, whose bits do not depend on the number of threads: each part of
// the rows is summed in order, then the parts.

/// Number of parts of the rows.
[[nodiscard]] inline std::ptrdiff_t parts_of(std::ptrdiff_t rows) {
  constexpr std::ptrdiff_t most = 256;
  return std::min(rows, most);
}

/// Calls run(part, begin, end) for each part and its rows. `values`: of all rows.
template <typename Run>
void for_row_parts(std::ptrdiff_t rows, std::ptrdiff_t values, const Run& run) {
  const std::ptrdiff_t parts = parts_of(rows);
  vector_parts(parts, values, [&](std::ptrdiff_t begin, std::ptrdiff_t end, int) LOCKSTEP_INLINED {
    for (std::ptrdiff_t part = begin; part < end; ++part) {
      run(part, rows * part / parts, rows * (part + 1) / parts);
    }
  });
}

/// sums[c] = the sum over parts of partials[part * stride + c].
inline void add_parts(const float* partials, std::ptrdiff_t parts, std::ptrdiff_t stride,
                      std::ptrdiff_t columns, float* sums) {
  for (std::ptrdiff_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (std::ptrdiff_t part = 0; part < parts; ++part) sum += double{partials[part * stride + c]};
    sums[c] = static_cast<float>(sum);
  }
}

}  // namespace lockstep::cpu
