#include "matrix_product.hpp"

#include "vector_types.hpp"

#include <array>
#include <cstddef>

namespace lockstep::cpu {
namespace {

/// A block of the target, `rows` x `vectors`, that stays in registers. One step of the depth reads
/// a vector per column and a value per row.
template <int width, int rows, int vectors>
LOCKSTEP_INLINED inline void multiply_block(const MatrixProduct& of, std::int64_t row,
                                            std::int64_t column) {
  using V = typename VectorTypes<width>::Float;
  const float* left = of.left + row * of.left_row_stride;
  const float* right = of.right + column;
  float* const target = of.target + row * of.target_stride + column;
  std::array<std::array<V, vectors>, rows> sums{};
  for (std::int64_t k = 0; k < of.depth; ++k) {
    std::array<V, vectors> factors;
    for (std::ptrdiff_t j = 0; j < vectors; ++j) factors[j] = load_bytes<V>(right + j * width);
    for (int i = 0; i < rows; ++i) {
      const float value = left[i * of.left_row_stride];
      for (int j = 0; j < vectors; ++j) sums[i][j] += factors[j] * value;
    }
    left += of.left_column_stride;
    right += of.right_stride;
  }
  for (int i = 0; i < rows; ++i) {
    for (std::ptrdiff_t j = 0; j < vectors; ++j) {
      float* const to = target + i * of.target_stride + j * width;
      if (of.add) sums[i][j] += load_bytes<V>(to);
      store_bytes(sums[i][j], to);
    }
  }
}

/// All rows of some columns.
template <int width, int vectors>
LOCKSTEP_INLINED inline void multiply_columns(const MatrixProduct& of, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + 6 <= of.rows; row += 6) multiply_block<width, 6, vectors>(of, row, column);
  if (row + 4 <= of.rows) {
    multiply_block<width, 4, vectors>(of, row, column);
    row += 4;
  }
  for (; row < of.rows; ++row) multiply_block<width, 1, vectors>(of, row, column);
}

/// Vectors per row of the largest block. Six such rows fill the vector registers, of which AVX-512
/// and NEON have 32, the others 16.
template <int width>
constexpr int largest_block() {
#ifdef __aarch64__
  return 4;
#else
  return width == 16 ? 4 : 2;
#endif
}

template <int width>
LOCKSTEP_INLINED inline void multiply_with(const MatrixProduct& of) {
  constexpr int vectors = largest_block<width>();
  constexpr std::int64_t block = std::int64_t{vectors} * width;
  std::int64_t column = 0;
  for (; column + block <= of.columns; column += block) {
    multiply_columns<width, vectors>(of, column);
  }
  for (; column + width <= of.columns; column += width) multiply_columns<width, 1>(of, column);
  if constexpr (width > 8) {
    if (column < of.columns) multiply_columns<8, 1>(of, column);
  }
}

}  // namespace

void multiply(const MatrixProduct& product) {
  constexpr int most = 16;
  vector_loops::run_with_width(
      most, [&](auto width) LOCKSTEP_INLINED { multiply_with<decltype(width)::value>(product); });
}

}  // namespace lockstep::cpu
