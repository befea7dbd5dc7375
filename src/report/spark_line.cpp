#include "lockstep/report/spark_line.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/report/curve.hpp"

namespace lockstep::report {
namespace {

constexpr std::size_t levels = 8;
using Levels = std::array<const char*, levels + 1>;
constexpr Levels unicode_levels{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr Levels ascii_levels{" ", "_", ".", ":", "-", "=", "+", "*", "#"};

}  // namespace

std::vector<double> resample(std::span<const double> values, std::size_t columns) {
  const std::size_t count = std::min(columns, values.size());
  std::vector<double> result;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i * values.size() / count;
    const std::size_t end = (i + 1) * values.size() / count;
    Range range;
    for (const double value : values.subspan(first, end - first)) range.add(value);
    result.push_back(range.mean());
  }
  return result;
}

std::vector<std::string> spark_lines(std::span<const double> values, std::size_t rows,
                                     Charset charset) {
  const Levels& blocks = charset == Charset::unicode ? unicode_levels : ascii_levels;
  Range range;
  for (const double value : values) range.add(value);
  const double height = range.max - range.min;
  const auto most = static_cast<double>(rows * levels - 1);
  std::vector<std::string> lines(rows);
  for (const double value : values) {
    const double share = height > 0 ? (value - range.min) / height : 0.5;
    const bool finite = std::isfinite(value);
    // The least value has one eighth of a line.
    const std::size_t filled = finite ? 1 + static_cast<std::size_t>(std::lround(share * most)) : 0;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t below = (rows - 1 - row) * levels;
      const std::size_t level = std::clamp(filled, below, below + levels) - below;
      lines[row] += finite || row + 1 < rows ? blocks[level] : "x";
    }
  }
  return lines;
}

}  // namespace lockstep::report
