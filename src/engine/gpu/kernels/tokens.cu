#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

namespace lockstep::gpu {
namespace {

/// One item per 16 bytes of y.
template <typename T>
struct TokensForward {
  static constexpr int item_size = packed_size<T>;
  TokenExtent extent;
  const T* pixels;
  const float* class_token;
  const float* positions;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, extent.padded / item_size);
    const Division row = divide(place.quotient, extent.tokens);
    const std::int64_t channel = place.rest * item_size;
    Floats<item_size> values;
    if (row.rest == 0) {
      values = load<item_size>(class_token + channel);
    } else {
      const std::int64_t pixel = place.quotient - row.quotient - 1;
      values = load<item_size>(pixels + pixel * extent.padded + channel);
    }
    const auto position = load<item_size>(positions + row.rest * extent.padded + channel);
    for (int i = 0; i < item_size; ++i) values[i] += position[i];
    store<item_size>(y + item * item_size, values);
  }
};

/// One item per 16 bytes of the pixels.
template <typename T>
struct TokensBackward {
  static constexpr int item_size = packed_size<T>;
  TokenExtent extent;
  const T* dy;
  T* dpixels;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, extent.padded / item_size);
    const std::int64_t sample = divide(place.quotient, extent.tokens - 1).quotient;
    const std::int64_t row = place.quotient + sample + 1;
    store128(dpixels + item * item_size,
             load128(dy + row * extent.padded + place.rest * item_size));
  }
};

/// One item per 8 channels of a token; adds up the samples in their order.
template <typename T>
struct TokensParameterGradients {
  static constexpr int item_size = 8;
  TokenExtent extent;
  const T* dy;
  TokenGradients out;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t size = extent.tokens * extent.padded;
    const std::int64_t at = item * item_size;
    Floats<item_size> sums = filled<item_size>(0);
    for (std::int64_t sample = 0; sample < extent.batch; ++sample) {
      const auto values = load<item_size>(dy + sample * size + at);
      for (int i = 0; i < item_size; ++i) sums[i] += values[i];
    }
    if (out.positions != nullptr) write(out.positions + at, sums);
    if (out.class_token != nullptr && at < extent.padded) write(out.class_token + at, sums);
  }
  LOCKSTEP_HOST_DEVICE void write(float* to, Floats<item_size> sums) const {
    if (out.adds) {
      const auto there = load<item_size>(to);
      for (int i = 0; i < item_size; ++i) sums[i] += there[i];
    }
    store<item_size>(to, sums);
  }
};

/// One item per 16 bytes of the first token, or of all.
template <typename T>
struct FirstTokenForward {
  static constexpr int item_size = packed_size<T>;
  TokenExtent extent;
  const T* x;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, extent.padded / item_size);
    store128(y + item * item_size,
             load128(x + place.quotient * extent.tokens * extent.padded + place.rest * item_size));
  }
};
template <typename T>
struct FirstTokenBackward {
  static constexpr int item_size = packed_size<T>;
  TokenExtent extent;
  const T* dy;
  T* dx;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, extent.padded / item_size);
    const Division row = divide(place.quotient, extent.tokens);
    Packed128 values{};
    if (row.rest == 0) {
      values = load128(dy + row.quotient * extent.padded + place.rest * item_size);
    }
    store128(dx + item * item_size, values);
  }
};

}  // namespace

void tokens_forward(Stream stream, DataType type, const TokenExtent& extent, const void* pixels,
                    const float* class_token, const float* positions, void* y) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * extent.tokens * extent.padded / packed_size<T>,
           TokensForward<T>{extent, static_cast<const T*>(pixels), class_token, positions,
                            static_cast<T*>(y)});
  });
}

void tokens_backward(Stream stream, DataType type, const TokenExtent& extent, const void* dy,
                     void* dpixels) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * (extent.tokens - 1) * extent.padded / packed_size<T>,
           TokensBackward<T>{extent, static_cast<const T*>(dy), static_cast<T*>(dpixels)});
  });
}

void tokens_parameter_gradients(Stream stream, DataType type, const TokenExtent& extent,
                                const void* dy, const TokenGradients& out) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.tokens * extent.padded / TokensParameterGradients<T>::item_size,
           TokensParameterGradients<T>{extent, static_cast<const T*>(dy), out});
  });
}

void first_token_forward(Stream stream, DataType type, const TokenExtent& extent, const void* x,
                         void* y) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * extent.padded / packed_size<T>,
           FirstTokenForward<T>{extent, static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

void first_token_backward(Stream stream, DataType type, const TokenExtent& extent, const void* dy,
                          void* dx) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * extent.tokens * extent.padded / packed_size<T>,
           FirstTokenBackward<T>{extent, static_cast<const T*>(dy), static_cast<T*>(dx)});
  });
}

}  // namespace lockstep::gpu
