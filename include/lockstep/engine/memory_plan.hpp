#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// A buffer of a list of steps, live from the first step that touches it to the last, inclusive.
struct BufferRequest {
  std::size_t bytes = 0;
  int first_step = 0;
  int last_step = 0;
};

/// Each buffer's offset within one allocation of `total_bytes`. Offsets are multiples of 256, the
/// alignment that device kernels and libraries expect.
struct MemoryPlan {
  std::vector<std::size_t> offsets;
  std::size_t total_bytes = 0;
};

/// Places the buffers so that two with overlapping lifetimes never share a byte. Greedy by size:
/// largest first, each at the lowest offset that is free during its lifetime. Pure.
[[nodiscard]] MemoryPlan plan_memory(std::span<const BufferRequest> requests);

}  // namespace lockstep
