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
  std::int64_t columns = 0;  ///< a multiple of 8
  std::int64_t depth = 0;
  bool add = false;
};

/// Runs in the calling thread. Each value is one sum in the order of `depth`, with fused
/// multiply-adds where the processor has them, so its bits do not depend on the rest of the
/// product.
void multiply(const MatrixProduct& product);

}  // namespace lockstep::cpu
