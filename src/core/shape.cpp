#include "lockstep/core/shape.hpp"

namespace lockstep {

std::string to_string(const Shape& shape) {
  if (shape.rank() == 0) return "scalar";
  std::string text;
  for (const std::int64_t extent : shape.extents()) {
    if (!text.empty()) text += 'x';
    text += std::to_string(extent);
  }
  return text;
}

}  // namespace lockstep
