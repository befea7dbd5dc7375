#include "host_convolution.hpp"

#include <vector>

namespace lockstep::gpu {
namespace {

std::vector<float> to_floats(const void* values, std::size_t count, DataType type) {
  std::vector<float> result(count);
  convert(nullptr, values, type, result.data(), DataType::f32, count);
  return result;
}

}  // namespace

void ConvolutionLoops::forward(const void* x, const void* weights, void* y) const {
  const auto in = to_floats(x, in_values(), shape_.type);
  const auto w = to_floats(weights, weight_values(), shape_.type);
  std::vector<float> out(out_values(), 0.0F);
  const std::int64_t positions = shape_.batch * shape_.out_height() * shape_.out_width();
#pragma omp parallel for schedule(static)
  for (std::int64_t position = 0; position < positions; ++position) {
    for_taps(position, [&](std::size_t pixel, std::int64_t tap) {
      for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
        float sum = 0;
        const std::size_t first = first_seen(o);
        for (std::int64_t i = 0; i < shape_.channels_per_group(); ++i) {
          sum += in[pixel + first + static_cast<std::size_t>(i)] * w[weight_at(o, tap, i)];
        }
        out[static_cast<std::size_t>(position * shape_.out_channels + o)] += sum;
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
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < shape_.batch; ++n) {
    for (std::int64_t p = n * per_image; p < (n + 1) * per_image; ++p) {
      for_taps(p, [&](std::size_t pixel, std::int64_t tap) {
        for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
          const float g = gradient[static_cast<std::size_t>(p * shape_.out_channels + o)];
          const std::size_t first = first_seen(o);
          for (std::int64_t i = 0; i < shape_.channels_per_group(); ++i) {
            in[pixel + first + static_cast<std::size_t>(i)] += g * w[weight_at(o, tap, i)];
          }
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
#pragma omp parallel for schedule(static)
  for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
    for (std::int64_t position = 0; position < positions; ++position) {
      const float g = gradient[static_cast<std::size_t>(position * shape_.out_channels + o)];
      for_taps(position, [&](std::size_t pixel, std::int64_t tap) {
        for (std::int64_t i = 0; i < shape_.channels_per_group(); ++i) {
          w[weight_at(o, tap, i)] += g * in[pixel + first_seen(o) + static_cast<std::size_t>(i)];
        }
      });
    }
  }
  convert(nullptr, w.data(), DataType::f32, dw, weight_gradient_type(), w.size());
}

}  // namespace lockstep::gpu
