#pragma once

#include <cstdint>

namespace lockstep::gpu {

/// A thread block computes `columns` results, each from the partial results of
/// threads_per_block / columns threads ("lanes"). `columns` is a power of two.
struct ThreadBlocks {
  std::int64_t count = 0;
  int columns = 1;
};
inline constexpr int threads_per_block = 256;

}  // namespace lockstep::gpu
