#pragma once

#include "lockstep/core/host_device.hpp"

#include <cstdint>

namespace lockstep {

/// Which blocks each sample of a batch drops in training (stochastic depth).
struct DroppedBlocks {
  const std::uint64_t* masks = nullptr;  ///< (N,), bit b: block b; null: no sample drops any
  friend bool operator==(const DroppedBlocks&, const DroppedBlocks&) = default;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool drops(std::int64_t sample, int block) const {
    return masks != nullptr && (masks[sample] >> block & 1U) != 0;
  }
};

}  // namespace lockstep
