#pragma once

#include "lockstep/export/trained_model.hpp"
#include "lockstep/io/file_parts.hpp"

#include <string>
#include <vector>

namespace lockstep {

enum class ElementType { float32, int64 };

struct StateTensor {
  std::string name;
  Shape shape;
  ElementType type;
  FilePart values;  ///< little-endian, in row-major order
};

/// What state_dict() of torchvision's module returns, layer by layer: also num_batches_tracked, for
/// which the number of steps stands. Views the values of `model`.
[[nodiscard]] std::vector<StateTensor> state_dict(const TrainedModel& model);

}  // namespace lockstep
