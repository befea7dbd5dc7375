#include "linear_step.hpp"

#include "matrix_product.hpp"
#include "threads.hpp"

#include <algorithm>

namespace lockstep::cpu {
namespace {

struct LinearRows {
  std::int64_t in_features;
  std::int64_t out_features;
  const float* source;
  const float* weight;
  const float* bias;
  float* target;

  void compute(std::int64_t first, std::int64_t last) const {
    const float* const from = source + first * in_features;
    float* const to = target + first * out_features;
    const std::int64_t rows = last - first;
    for (std::int64_t i = 0; i < rows; ++i) std::copy_n(bias, out_features, to + i * out_features);
    const std::int64_t columns = out_features / 8 * 8;
    multiply({.left = from,
              .left_row_stride = in_features,
              .left_column_stride = 1,
              .right = weight,
              .right_stride = out_features,
              .target = to,
              .target_stride = out_features,
              .rows = rows,
              .columns = columns,
              .depth = in_features,
              .add = true});
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = columns; j < out_features; ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < in_features; ++k) {
          sum += from[i * in_features + k] * weight[k * out_features + j];
        }
        to[i * out_features + j] += sum;
      }
    }
  }
};

}  // namespace

void emit_linear(ProgramBuilder& builder, const std::string& name, const LinearOperands& operands) {
  const Dims source = dims_of(operands.source.desc());
  builder.emit_loop(
      name, {operands.source, operands.weight, operands.bias, operands.target},
      [rows = source[0], in_features = source[1], out_features = dims_of(operands.target.desc())[1],
       threads = region_threads(builder.state().threads)](const LoopStep::Addresses& at) {
        const LinearRows of{.in_features = in_features,
                            .out_features = out_features,
                            .source = static_cast<const float*>(at[0]),
                            .weight = static_cast<const float*>(at[1]),
                            .bias = static_cast<const float*>(at[2]),
                            .target = static_cast<float*>(at[3])};
#pragma omp parallel for num_threads(threads)
        for (int i = 0; i < threads; ++i) of.compute(rows * i / threads, rows * (i + 1) / threads);
      });
}

}  // namespace lockstep::cpu
