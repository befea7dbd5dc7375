#pragma once

#include <cstdint>

namespace lockstep::cpu {

/// target (rows, columns) = left (rows, depth) * right (depth, columns), fp32; added to the target
/// if `add`. Strides are in values; columns of `right` and `target` are adjacent.
struct MatrixProduct {
  const float* left = nullptr;
  std::int64_t left_row_stride = 0;
  std::int64_t left_column_stride = 0;  ///< 1, or left_row_stride is 1: `left` is transposed
  const float* right = nullptr;
  std::int64_t right_stride = 0;
  float* target = nullptr;
  std::int64_t target_stride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< a multiple of the lanes
  std::int64_t depth = 0;
  bool add = false;
};

/// Runs in the calling thread, on vectors of 8 or 16 lanes. Each value is one sum in the order of
/// `depth`, with fused multiply-adds where the processor has them, so its bits depend neither on
/// the lanes nor on the shape of the product.
void multiply(const MatrixProduct& product, int lanes);

}  // namespace lockstep::cpu
