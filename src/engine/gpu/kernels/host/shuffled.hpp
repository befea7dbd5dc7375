#pragma once

#include <cstdint>
#include <numeric>

namespace lockstep::gpu {

/// A fixed permutation of [0, count), in which some numbers follow their predecessors and others
/// their successors.
class Shuffled final {
 public:
  explicit Shuffled(std::int64_t count) : count_(count), stride_(count * 3 / 8 + 1) {
    while (std::gcd(stride_, count) > 1) ++stride_;
  }
  [[nodiscard]] std::int64_t operator[](std::int64_t at) const {
    return ((at + 1) * stride_) % count_;
  }

 private:
  std::int64_t count_;
  std::int64_t stride_;
};

}  // namespace lockstep::gpu
