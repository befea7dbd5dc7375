#pragma once

#include "segments.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace lockstep {

inline constexpr std::size_t chunk_size = 4096;

/// Sum of squares in a fixed order that still vectorizes.
[[nodiscard]] inline double sum_of_squares(const float* values, std::size_t count) noexcept {
  std::array<double, 8> lanes{};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      lanes[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
    }
  }
  for (; i < count; ++i) lanes[0] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// Sum over `size` values of sum_of_chunk(begin, count) with count <= chunk_size, in an order that
/// does not depend on the threads: they sum chunks, whose sums are added in order.
template <typename SumOfChunk>
[[nodiscard]] double chunked_sum(std::size_t size, SumOfChunk&& sum_of_chunk) {
  std::array<double, 256> sums;
  double total = 0;
  for (std::size_t group = 0; group < size; group += sums.size() * chunk_size) {
    const std::size_t rest = std::min(sums.size() * chunk_size, size - group);
    const std::size_t chunks = (rest + chunk_size - 1) / chunk_size;
#pragma omp parallel for schedule(static) if (rest >= smallest_parallel_size)
    for (std::size_t i = 0; i < chunks; ++i) {
      sums[i] = sum_of_chunk(group + i * chunk_size, std::min(chunk_size, rest - i * chunk_size));
    }
    for (std::size_t i = 0; i < chunks; ++i) total += sums[i];
  }
  return total;
}

}  // namespace lockstep
