#pragma once

#include "kernels.hpp"
#include "lockstep/core/label_rank.hpp"

#include <bit>

namespace lockstep::gpu {

LOCKSTEP_HOST_DEVICE inline float infinity() {
  return std::bit_cast<float>(0x7F800000U);
}

}  // namespace lockstep::gpu
