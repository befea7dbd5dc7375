#include "host_convolution.hpp"

#include "../../../src/engine/gpu/kernels/kernels.hpp"

#include <omp.h>

#include <algorithm>
#include <vector>

namespace lockstep::gpu {
namespace {

std::vector<float> to_floats(const void* values, std::size_t count, DataType type) {
  std::vector<float> result(count);
  convert(nullptr, values, type, result.data(), DataType::f32, count);
  return result;
}

// Most of the tests' time passes in these two loops.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_FOR_PROCESSORS __attribute__((target_clones("default", "arch=haswell")))
#else
#define LOCKSTEP_FOR_PROCESSORS
#endif

/// Row i of a matrix begins at values + i * stride.
struct Rows {
  const float* values;
  std::int64_t rows;
  std::int64_t stride;
};

/// out (columns,) += x (rows,) times the matrix
LOCKSTEP_FOR_PROCESSORS void add_product(const float* x, Rows matrix, std::int64_t columns,
                                         float* __restrict out) {
  constexpr std::int64_t together = 16;
  for (std::int64_t begin = 0; begin < columns; begin += together) {
    const std::int64_t count = std::min(together, columns - begin);
    float sums[together] = {};  // added separately, which rounds less
    const float* values = matrix.values + begin;
    for (std::int64_t row = 0; row < matrix.rows; ++row, values += matrix.stride) {
      for (std::int64_t c = 0; c < count; ++c) sums[c] += x[row] * values[c];
    }
    for (std::int64_t c = 0; c < count; ++c) out[begin + c] += sums[c];
  }
}

/// The matrix at `out`, (rows, columns) with the stride, += y (rows,) times x (columns,)
LOCKSTEP_FOR_PROCESSORS void add_outer_product(const float* y, std::int64_t rows, const float* x,
                                               std::int64_t columns, float* __restrict out,
                                               std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < columns; ++c) out[row * stride + c] += y[row] * x[c];
  }
}

}  // namespace

void ConvolutionLoops::forward(const void* x, const void* weights, void* y) const {
  const auto in = to_floats(x, in_values(), shape_.type);
  const auto w = to_floats(weights, weight_values(), shape_.type);
  // (taps, inputs of a group, outputs), so that a loop over outputs is contiguous.
  std::vector<float> turned(w.size());
  for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
    for (std::int64_t k = 0; k < weight_stride(); ++k) {
      turned[static_cast<std::size_t>(k * shape_.out_channels + o)] =
          w[static_cast<std::size_t>(o * weight_stride() + k)];
    }
  }
  std::vector<float> out(out_values(), 0.0F);
  const std::int64_t positions = shape_.batch * shape_.out_height() * shape_.out_width();
  const std::int64_t inputs = shape_.channels_per_group();
#pragma omp parallel for schedule(static)
  for (std::int64_t position = 0; position < positions; ++position) {
    float* const values = out.data() + position * shape_.out_channels;
    for_taps(position, [&](std::size_t pixel, std::int64_t tap) {
      for (std::int64_t group = 0; group < shape_.groups; ++group) {
        const std::int64_t first = group * outputs_per_group();
        add_product(in.data() + pixel + group * inputs,
                    {turned.data() + tap * inputs * shape_.out_channels + first, inputs,
                     shape_.out_channels},
                    outputs_per_group(), values + first);
      }
    });
  }
  convert(nullptr, out.data(), DataType::f32, y, shape_.type, out.size());
}

void ConvolutionLoops::backward_data(const void* dy, const void* weights, void* dx) const {
  const auto gradient = to_floats(dy, out_values(), shape_.type);
  const auto w = to_floats(weights, weight_values(), shape_.type);
  std::vector<float> in(in_values(), 0.0F);
  const std::int64_t per_image = shape_.out_height() * shape_.out_width();
  const std::int64_t inputs = shape_.channels_per_group();
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < shape_.batch; ++n) {
    for (std::int64_t p = n * per_image; p < (n + 1) * per_image; ++p) {
      for_taps(p, [&](std::size_t pixel, std::int64_t tap) {
        for (std::int64_t group = 0; group < shape_.groups; ++group) {
          const std::int64_t first = group * outputs_per_group();
          add_product(gradient.data() + p * shape_.out_channels + first,
                      {w.data() + first * weight_stride() + tap * inputs, outputs_per_group(),
                       weight_stride()},
                      inputs, in.data() + pixel + group * inputs);
        }
      });
    }
  }
  convert(nullptr, in.data(), DataType::f32, dx, shape_.type, in.size());
}

void ConvolutionLoops::backward_weights(const void* x, const void* dy, void* dw) const {
  const auto in = to_floats(x, in_values(), shape_.type);
  const auto gradient = to_floats(dy, out_values(), shape_.type);
  std::vector<float> w(weight_values(), 0.0F);
  const std::int64_t positions = shape_.batch * shape_.out_height() * shape_.out_width();
  const std::int64_t inputs = shape_.channels_per_group();
  // Each thread has some of the outputs of every group.
  const std::int64_t parts = omp_get_max_threads();
  const std::int64_t each = (outputs_per_group() + parts - 1) / parts;
#pragma omp parallel for schedule(static)
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = std::min(part * each, outputs_per_group());
    const std::int64_t count = std::min(each, outputs_per_group() - begin);
    for (std::int64_t position = 0; position < positions; ++position) {
      for_taps(position, [&](std::size_t pixel, std::int64_t tap) {
        for (std::int64_t group = 0; group < shape_.groups; ++group) {
          const std::int64_t first = group * outputs_per_group() + begin;
          add_outer_product(gradient.data() + position * shape_.out_channels + first, count,
                            in.data() + pixel + group * inputs, inputs,
                            w.data() + first * weight_stride() + tap * inputs, weight_stride());
        }
      });
    }
  }
  convert(nullptr, w.data(), DataType::f32, dw, shape_.type, w.size());
}

}  // namespace lockstep::gpu
