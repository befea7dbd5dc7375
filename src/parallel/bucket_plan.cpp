#include "lockstep/parallel/bucket_plan.hpp"

namespace lockstep {

namespace {

/// A last bucket of this size is not cut further.
constexpr std::size_t smallest_bytes = std::size_t{1} << 20;

}  // namespace

std::vector<Bucket> plan_buckets(const ArenaLayout& layout, std::size_t tail_size,
                                 std::size_t target_bytes, TailPlace place) {
  std::vector<Bucket> buckets;
  std::size_t begin = 0;
  for (std::size_t i = 0; i + 1 < layout.views.size(); ++i) {
    // A bucket includes the gap after its last tensor, so that buckets are contiguous.
    const std::size_t end = layout.views[i + 1].offset;
    const std::size_t bytes = (end - begin) * sizeof(float);
    const std::size_t rest = (layout.size() - end) * sizeof(float);
    if (bytes >= target_bytes || (rest >= smallest_bytes && bytes >= rest)) {
      buckets.push_back({.begin = begin, .end = end});
      begin = end;
    }
  }
  if (place == TailPlace::separate_bucket && begin < layout.size()) {
    buckets.push_back({.begin = begin, .end = layout.size()});
    begin = layout.size();
  }
  buckets.push_back({.begin = begin, .end = layout.size() + tail_size});
  return buckets;
}

}  // namespace lockstep
