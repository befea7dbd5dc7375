#pragma once

#include "../../../src/engine/gpu/convolution_request.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

/// The passes of a convolution as plain loops, which round as a GPU does.
class ConvolutionLoops final {
 public:
  explicit ConvolutionLoops(const ConvolutionShape& shape) : shape_(shape) {}

  void forward(const void* x, const void* weights, void* y) const;
  void backward_data(const void* dy, const void* weights, void* dx) const;
  void backward_weights(const void* x, const void* dy, void* dw) const;

 private:
  [[nodiscard]] std::size_t in_values() const {
    return static_cast<std::size_t>(shape_.batch * shape_.height * shape_.width *
                                    shape_.in_channels);
  }
  [[nodiscard]] std::size_t out_values() const {
    return static_cast<std::size_t>(shape_.batch * shape_.out_height() * shape_.out_width() *
                                    shape_.out_channels);
  }
  [[nodiscard]] std::size_t weight_values() const {
    return static_cast<std::size_t>(shape_.out_channels * weight_stride());
  }
  [[nodiscard]] std::int64_t outputs_per_group() const {
    return shape_.out_channels / shape_.groups;
  }
  /// Weights of an output channel.
  [[nodiscard]] std::int64_t weight_stride() const {
    return shape_.kernel * shape_.kernel_columns() * shape_.channels_per_group();
  }
  /// Calls visit(input pixel's first value, tap) for each tap of an output position that is not
  /// padding.
  template <typename Visit>
  void for_taps(std::int64_t position, Visit&& visit) const {
    const std::int64_t ow = position % shape_.out_width();
    const std::int64_t oh = position / shape_.out_width() % shape_.out_height();
    const std::int64_t n = position / shape_.out_width() / shape_.out_height();
    for (std::int64_t kh = 0; kh < shape_.kernel; ++kh) {
      for (std::int64_t kw = 0; kw < shape_.kernel_columns(); ++kw) {
        const std::int64_t h = oh * shape_.stride - shape_.padding + kh;
        const std::int64_t w = ow * shape_.stride - shape_.padding + kw;
        if (h < 0 || w < 0 || h >= shape_.height || w >= shape_.width) continue;
        visit(static_cast<std::size_t>(((n * shape_.height + h) * shape_.width + w) *
                                       shape_.in_channels),
              kh * shape_.kernel_columns() + kw);
      }
    }
  }

  ConvolutionShape shape_;
};

}  // namespace lockstep::gpu
