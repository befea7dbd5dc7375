#pragma once

#include "lockstep/comm/communicator.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace lockstep::test {

/// Small integers, so that sums are exact in every type (u8 and bf16: at most 8 ranks * 30). Open
/// MPI adds u8 with saturation.
template <typename T>
[[nodiscard]] T value_of(int rank, std::size_t i) {
  const std::size_t value = (i * 31 + static_cast<std::size_t>(rank) * 17 + i / 7) % 31;
  if constexpr (std::is_class_v<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
[[nodiscard]] std::vector<T> values_of(int rank, std::size_t count, std::size_t begin = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of<T>(rank, begin + i);
  return values;
}

template <typename T>
[[nodiscard]] std::vector<T> reduced(int ranks, std::size_t count, ReduceOp op,
                                     std::size_t begin = 0) {
  std::vector<T> result = values_of<T>(0, count, begin);
  for (int rank = 1; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      using Wide = std::conditional_t<std::is_class_v<T>, float, T>;
      const Wide other{value_of<T>(rank, begin + i)};
      const Wide mine{result[i]};
      if (op == ReduceOp::sum) result[i] = T(static_cast<Wide>(mine + other));
      if (op == ReduceOp::min) result[i] = T(std::min(mine, other));
      if (op == ReduceOp::max) result[i] = T(std::max(mine, other));
    }
  }
  return result;
}

}  // namespace lockstep::test
