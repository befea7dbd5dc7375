#include "lockstep/optim/optimizer.hpp"

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
  double sum = 0;
  for (std::size_t i = 0; i < gradients.size(); i += chunk) {
    sum += chunk_sum(gradients.data() + i, std::min(chunk, gradients.size() - i));
  }
  return sum;
}

}  // namespace lockstep
