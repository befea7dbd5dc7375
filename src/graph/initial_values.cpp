#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/graph/graph.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

/// Values that one thread draws in one go; a multiple of the values per block of the stream.
constexpr std::int64_t chunk = 4096;
constexpr std::int64_t numbers_a_block = 4;

/// `draw` uses `numbers` numbers of the stream per value. Threads seek to any position of the
/// stream, so the result equals that of one thread drawing in order.
template <typename Draw>
void fill(std::vector<float>& values, const PhiloxStream& stream, std::int64_t numbers, Draw draw) {
  const auto size = static_cast<std::int64_t>(values.size());
#pragma omp parallel for schedule(static) if (size > chunk)
  for (std::int64_t begin = 0; begin < size; begin += chunk) {
    PhiloxStream own = stream;
    own.seek(static_cast<std::uint32_t>(begin * numbers / numbers_a_block));
    const std::int64_t end = std::min(size, begin + chunk);
    for (std::int64_t i = begin; i < end; ++i) {
      values[static_cast<std::size_t>(i)] = static_cast<float>(draw(own));
    }
  }
}
void fill_uniform(std::vector<float>& values, const PhiloxStream& stream, double bound) {
  fill(values, stream, 2, [=](PhiloxStream& own) { return bound * (2 * own.next_double() - 1); });
}

}  // namespace

std::vector<float> initial_values(const Parameter& parameter, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(parameter.shape.elements()));
  // Keyed by name, not by position, so that preceding layers do not change the values.
  const PhiloxStream random(seed, RandomPurpose::initialization, crc32c(parameter.name), 0);
  switch (parameter.initialization) {
    case Initialization::zeros:
      break;
    case Initialization::ones:
      std::fill(values.begin(), values.end(), 1.0F);
      break;
    case Initialization::kaiming_normal_fan_out: {
      const Shape& shape = parameter.shape;
      const double deviation = std::sqrt(2.0 / static_cast<double>(shape[0] * shape[2] * shape[3]));
      fill(values, random, 4, [=](PhiloxStream& own) { return deviation * own.next_normal(); });
      break;
    }
    case Initialization::uniform_fan_in: {
      const double bound =
          1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(parameter.fan_in, 1)));
      fill_uniform(values, random, bound);
      break;
    }
    case Initialization::xavier_uniform: {
      const Shape& shape = parameter.shape;
      const std::int64_t area = shape.elements() / (shape[0] * shape[1]);
      const auto fans = static_cast<double>((shape[0] + shape[1]) * area);
      fill_uniform(values, random, std::sqrt(6.0 / fans));
      break;
    }
    case Initialization::normal: {
      const double deviation = parameter.deviation;
      fill(values, random, 4,
           [=](PhiloxStream& own) { return std::clamp(deviation * own.next_normal(), -2.0, 2.0); });
      break;
    }
  }
  return values;
}

}  // namespace lockstep
