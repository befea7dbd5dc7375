#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/graph/graph.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {

std::vector<float> initial_values(const Parameter& parameter, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(parameter.shape.elements()));
  // By name and not by place, so that a layer starts alike whatever stands before it.
  PhiloxStream random(seed, RandomPurpose::initialization, crc32c(parameter.name), 0);
  switch (parameter.initialization) {
    case Initialization::zeros:
      break;
    case Initialization::ones:
      std::fill(values.begin(), values.end(), 1.0F);
      break;
    case Initialization::kaiming_normal_fan_out: {
      const Shape& shape = parameter.shape;
      const double deviation = std::sqrt(2.0 / static_cast<double>(shape[0] * shape[2] * shape[3]));
      for (float& value : values) value = static_cast<float>(deviation * random.next_normal());
      break;
    }
    case Initialization::uniform_fan_in: {
      const double bound =
          1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(parameter.fan_in, 1)));
      for (float& value : values)
        value = static_cast<float>(bound * (2 * random.next_double() - 1));
      break;
    }
  }
  return values;
}

}  // namespace lockstep
