#pragma once

#include <cstdint>

namespace lockstep::cpu {

/// What a call of a program hands to its steps.
struct Call {
  const std::int32_t* labels = nullptr;
  std::int64_t samples = 0;
  float loss_scale = 1.0F;
};

}  // namespace lockstep::cpu
