#pragma once

#include <cstdint>

namespace lockstep::cpu {

/// Arguments of a program's call that its steps read.
struct Call {
  const std::int32_t* labels = nullptr;
  std::int64_t samples = 0;
  float loss_scale = 1.0F;
};

}  // namespace lockstep::cpu
