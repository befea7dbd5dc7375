#include "../../src/engine/cpu/matrix_product.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <random>
#include <vector>

using namespace lockstep::cpu;

namespace {

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

/// Matrices with gaps between their rows.
struct Matrices {
  explicit Matrices(const Shape& of)
      : shape(of),
        right_stride(shape.columns + 16),
        target_stride(shape.columns + 32),
        left(random_values(shape.rows * shape.depth, 1)),
        right(random_values(shape.depth * right_stride, 2)),
        target(random_values(shape.rows * target_stride, 3)) {}

  [[nodiscard]] MatrixProduct product(bool transposed, bool add) {
    return {.left = left.data(),
            .left_row_stride = transposed ? 1 : shape.depth,
            .left_column_stride = transposed ? shape.rows : 1,
            .right = right.data(),
            .right_stride = right_stride,
            .target = target.data(),
            .target_stride = target_stride,
            .rows = shape.rows,
            .columns = shape.columns,
            .depth = shape.depth,
            .add = add};
  }

  Shape shape;
  std::int64_t right_stride;
  std::int64_t target_stride;
  std::vector<float> left;
  std::vector<float> right;
  std::vector<float> target;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_product_equals_the_sums_in_double) {
  for (const Shape& shape : {Shape{1, 16, 1}, Shape{6, 64, 16}, Shape{13, 80, 33},
                             Shape{29, 48, 128}, Shape{4, 144, 20}, Shape{17, 104, 7}}) {
    for (const bool transposed : {false, true}) {
      for (const bool add : {false, true}) {
        Matrices of(shape);
        const std::vector<float> before = of.target;
        const MatrixProduct product = of.product(transposed, add);
        multiply(product);

        double largest = 0;
        bool gaps_are_kept = true;
        for (std::int64_t i = 0; i < shape.rows; ++i) {
          for (std::int64_t j = 0; j < of.target_stride; ++j) {
            const auto at = static_cast<std::size_t>(i * of.target_stride + j);
            if (j >= shape.columns) {
              gaps_are_kept = gaps_are_kept && of.target[at] == before[at];
              continue;
            }
            double sum = add ? before[at] : 0.0;
            for (std::int64_t k = 0; k < shape.depth; ++k) {
              sum +=
                  double{
                      product.left[i * product.left_row_stride + k * product.left_column_stride]} *
                  double{product.right[k * product.right_stride + j]};
            }
            largest = std::max(largest, std::abs(sum - double{of.target[at]}));
          }
        }
        // Roundings of a sum of `depth` products of about 1.
        BOOST_TEST(largest < 2e-6 * static_cast<double>(shape.depth + 4));
        BOOST_TEST(gaps_are_kept);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_the_rest_of_the_product) {
  Matrices whole({.rows = 23, .columns = 88, .depth = 40});
  Matrices part = whole;
  multiply(whole.product(false, false));
  const MatrixProduct all = part.product(false, false);
  for (std::int64_t row = 0; row < 23; ++row) {
    for (std::int64_t column = 0; column < 88; column += 8) {
      MatrixProduct one = all;
      one.left += row * all.left_row_stride;
      one.right += column;
      one.target += row * all.target_stride + column;
      one.rows = 1;
      one.columns = 8;
      multiply(one);
    }
  }

  BOOST_TEST((whole.target == part.target));
}
