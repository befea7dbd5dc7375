#include "lockstep/optim/optimizer.hpp"

#include "segments.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::size_t chunk = 4096;

double chunk_sum(const float* values, std::size_t count) noexcept {
  std::array<double, 8> lanes{};  // a fixed order that still vectorizes
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

}  // namespace

double squared_norm(std::span<const float> gradients) {
  // Threads sum chunks; the chunk sums are added in order.
  std::array<double, 256> sums;
  double total = 0;
  for (std::size_t group = 0; group < gradients.size(); group += sums.size() * chunk) {
    const float* const values = gradients.data() + group;
    const std::size_t size = std::min(sums.size() * chunk, gradients.size() - group);
    const std::size_t chunks = (size + chunk - 1) / chunk;
#pragma omp parallel for schedule(static) if (size >= smallest_parallel_size)
    for (std::size_t i = 0; i < chunks; ++i) {
      sums[i] = chunk_sum(values + i * chunk, std::min(chunk, size - i * chunk));
    }
    for (std::size_t i = 0; i < chunks; ++i) total += sums[i];
  }
  return total;
}

}  // namespace lockstep
