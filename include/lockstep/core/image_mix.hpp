#pragma once

#include <cstdint>

namespace lockstep {

/// How a sample of a batch is mixed with another one (mixup): its target is `weight` of its own and
/// 1 - weight of the partner's. A sample that is not mixed is its own partner.
struct ImageMix {
  std::int32_t partner = 0;  ///< index in the batch
  float weight = 1.0F;       ///< in [0, 1]
  friend bool operator==(const ImageMix&, const ImageMix&) = default;
};

}  // namespace lockstep
