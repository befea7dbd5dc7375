#pragma once

#include "lockstep/core/host_device.hpp"

#include <cmath>

namespace lockstep::gpu {

/// On devices within two units in the last place.
LOCKSTEP_HOST_DEVICE inline float inverse_deviation(float variance, float eps) {
#ifdef __CUDA_ARCH__
  return rsqrtf(variance + eps);
#else
  return 1.0F / std::sqrt(variance + eps);
#endif
}

}  // namespace lockstep::gpu
