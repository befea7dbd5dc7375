#include "matrix_product.hpp"

#include "norm_lanes.hpp"

#include <array>
#include <type_traits>

namespace lockstep::cpu {
namespace {

/// A block of the target, `rows` x `vectors`, that stays in registers. One step of the depth reads
/// a vector per column and a value per row.
template <int lanes, int rows, int vectors>
LOCKSTEP_INLINED inline void multiply_block(const MatrixProduct& of, std::int64_t row,
                                            std::int64_t column) {
  using V = typename VectorTypes<lanes>::Float;
  const float* left = of.left + row * of.left_row_stride;
  const float* right = of.right + column;
  float* const target = of.target + row * of.target_stride + column;
  std::array<std::array<V, vectors>, rows> sums{};
  for (std::int64_t k = 0; k < of.depth; ++k) {
    std::array<V, vectors> factors;
    for (int j = 0; j < vectors; ++j) factors[j] = load_bytes<V>(right + j * lanes);
    for (int i = 0; i < rows; ++i) {
      const float value = left[i * of.left_row_stride];
      for (int j = 0; j < vectors; ++j) sums[i][j] += factors[j] * value;
    }
    left += of.left_column_stride;
    right += of.right_stride;
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      float* const to = target + i * of.target_stride + j * lanes;
      if (of.add) sums[i][j] += load_bytes<V>(to);
      store_bytes(sums[i][j], to);
    }
  }
}

/// All rows of a panel of columns.
template <int lanes, int vectors>
LOCKSTEP_INLINED inline void multiply_panel(const MatrixProduct& of, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + 6 <= of.rows; row += 6) multiply_block<lanes, 6, vectors>(of, row, column);
  if (row + 4 <= of.rows) {
    multiply_block<lanes, 4, vectors>(of, row, column);
    row += 4;
  }
  for (; row < of.rows; ++row) multiply_block<lanes, 1, vectors>(of, row, column);
}

/// The widest block fills the registers: 6 x 4 vectors of the 32 of AVX-512, 6 x 2 of the 16 of
/// AVX2.
template <int lanes>
LOCKSTEP_INLINED inline void multiply_panels(const MatrixProduct& of) {
  constexpr int widest = lanes == 16 ? 4 : 2;
  std::int64_t column = 0;
  for (; column + widest * lanes <= of.columns; column += widest * lanes) {
    multiply_panel<lanes, widest>(of, column);
  }
  for (; column < of.columns; column += lanes) multiply_panel<lanes, 1>(of, column);
}

#ifdef LOCKSTEP_HAS_WIDE_VECTORS
template <int lanes>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void multiply_avx512(
    const MatrixProduct& of) {
  multiply_panels<lanes>(of);
}
template <int lanes>
__attribute__((target("avx2,fma"))) void multiply_avx2(const MatrixProduct& of) {
  multiply_panels<lanes>(of);
}
#endif

template <int lanes>
void multiply_with(const MatrixProduct& of) {
#ifdef LOCKSTEP_HAS_WIDE_VECTORS
  using vector_loops::Vectors;
  const Vectors widest = vector_loops::widest();
  if (widest == Vectors::avx512) return multiply_avx512<lanes>(of);
  if (widest == Vectors::avx2 && __builtin_cpu_supports("fma")) return multiply_avx2<lanes>(of);
#endif
  multiply_panels<lanes>(of);
}

}  // namespace

void multiply(const MatrixProduct& product, int lanes) {
  lanes == 16 ? multiply_with<16>(product) : multiply_with<8>(product);
}

}  // namespace lockstep::cpu
