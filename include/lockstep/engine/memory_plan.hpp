#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// A buffer that a list of steps needs, from the first step that touches it to the last, inclusive.
struct BufferRequest {
  std::size_t bytes = 0;
  int first_step = 0;
  int last_step = 0;
};

/// Where each buffer lies within one allocation of `total_bytes`; offsets are multiples of 256, as
/// devices' kernels and libraries expect of memory of their own.
struct MemoryPlan {
  std::vector<std::size_t> offsets;
  std::size_t total_bytes = 0;
};

/// Places the buffers so that two whose lifetimes overlap never share a byte. Greedy by size: the
/// largest first, each at the lowest offset that is free during its life. Pure.
[[nodiscard]] MemoryPlan plan_memory(std::span<const BufferRequest> requests);

}  // namespace lockstep
