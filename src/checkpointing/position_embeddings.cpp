#include "position_embeddings.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

/// The four values that one is interpolated from, and their weights.
struct Taps {
  std::array<std::int64_t, 4> index;
  std::array<double, 4> weight;
};

/// R. Keys, "Cubic convolution interpolation for digital image processing", 1981, with the a of
/// PyTorch.
double cubic(double distance) {
  constexpr double a = -0.75;
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
  const double step = to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0;
  std::vector<Taps> all;
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = step * static_cast<double>(i);
    const auto floor = static_cast<std::int64_t>(at);
    Taps taps{};
    for (std::int64_t tap = 0; tap < 4; ++tap) {
      const std::int64_t index = floor - 1 + tap;
      const auto place = static_cast<std::size_t>(tap);
      taps.index[place] = std::clamp<std::int64_t>(index, 0, from - 1);
      taps.weight[place] = cubic(at - static_cast<double>(index));
    }
    all.push_back(taps);
  }
  return all;
}

}  // namespace

PositionGrid square_grid(const Shape& shape) {
  if (shape.rank() != 3 || shape[0] != 1 || shape[1] < 2) return {};
  const std::int64_t patches = shape[1] - 1;
  const auto side =
      static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
  if (side * side != patches) return {};
  return {.height = side, .width = side};
}

std::vector<float> resize_positions(std::span<const float> values, PositionGrid from,
                                    PositionGrid to) {
  const auto width = values.size() / static_cast<std::size_t>(1 + from.height * from.width);
  const std::vector<Taps> rows = taps_of(from.height, to.height);
  const std::vector<Taps> columns = taps_of(from.width, to.width);
  std::vector<float> result(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(width));
  result.reserve(width * static_cast<std::size_t>(1 + to.height * to.width));
  for (const Taps& row : rows) {
    for (const Taps& column : columns) {
      for (std::size_t channel = 0; channel < width; ++channel) {
        double sum = 0;
        for (std::size_t y = 0; y < 4; ++y) {
          for (std::size_t x = 0; x < 4; ++x) {
            const auto token =
                static_cast<std::size_t>(1 + row.index[y] * from.width + column.index[x]);
            sum += row.weight[y] * column.weight[x] *
                   static_cast<double>(values[token * width + channel]);
          }
        }
        result.push_back(static_cast<float>(sum));
      }
    }
  }
  return result;
}

}  // namespace lockstep
