#include "lockstep/engine/memory_plan.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

constexpr std::size_t alignment = 256;

constexpr std::size_t rounded_up(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

bool live_together(const BufferRequest& a, const BufferRequest& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

}  // namespace

MemoryPlan plan_memory(std::span<const BufferRequest> requests) {
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return requests[a].bytes > requests[b].bytes;
  });

  MemoryPlan plan{.offsets = std::vector<std::size_t>(requests.size(), 0), .total_bytes = 0};
  std::vector<std::size_t> by_offset;  // placed buffers, ascending by offset
  for (const std::size_t index : order) {
    const std::size_t bytes = rounded_up(requests[index].bytes);
    std::size_t offset = 0;
    for (const std::size_t other : by_offset) {
      if (!live_together(requests[index], requests[other])) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + rounded_up(requests[other].bytes));
    }
    plan.offsets[index] = offset;
    plan.total_bytes = std::max(plan.total_bytes, offset + bytes);
    const auto place = std::upper_bound(
        by_offset.begin(), by_offset.end(), offset,
        [&](std::size_t value, std::size_t other) { return value < plan.offsets[other]; });
    by_offset.insert(place, index);
  }
  return plan;
}

}  // namespace lockstep
