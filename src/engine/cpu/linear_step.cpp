#include "linear_step.hpp"

#include "matrix_product.hpp"
#include "threads.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::cpu {

LinearStep::LinearStep(std::string name, Operands operands, int threads)
    : name_(std::move(name)),
      operands_(std::move(operands)),
      samples_(dims_of(operands_.source.get_desc())[0]),
      in_features_(dims_of(operands_.source.get_desc())[1]),
      out_features_(dims_of(operands_.target.get_desc())[1]),
      threads_(region_threads(threads)) {}

void LinearStep::run() {
#pragma omp parallel for num_threads(threads_)
  for (int i = 0; i < threads_; ++i) {
    compute(samples_ * i / threads_, samples_ * (i + 1) / threads_);
  }
}

void LinearStep::compute(std::int64_t first, std::int64_t last) const {
  const auto* const source =
      static_cast<const float*>(operands_.source.get_data_handle()) + first * in_features_;
  const auto* const weight = static_cast<const float*>(operands_.weight.get_data_handle());
  const auto* const bias = static_cast<const float*>(operands_.bias.get_data_handle());
  auto* const target =
      static_cast<float*>(operands_.target.get_data_handle()) + first * out_features_;
  const std::int64_t samples = last - first;
  for (std::int64_t i = 0; i < samples; ++i) {
    std::copy_n(bias, out_features_, target + i * out_features_);
  }
  const std::int64_t columns = out_features_ / 8 * 8;
  multiply({.left = source,
            .left_row_stride = in_features_,
            .left_column_stride = 1,
            .right = weight,
            .right_stride = out_features_,
            .target = target,
            .target_stride = out_features_,
            .rows = samples,
            .columns = columns,
            .depth = in_features_,
            .add = true});
  for (std::int64_t i = 0; i < samples; ++i) {
    for (std::int64_t j = columns; j < out_features_; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < in_features_; ++k) {
        sum += source[i * in_features_ + k] * weight[k * out_features_ + j];
      }
      target[i * out_features_ + j] += sum;
    }
  }
}

}  // namespace lockstep::cpu
