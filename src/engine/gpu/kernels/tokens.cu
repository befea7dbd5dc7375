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

/// One item per 16 bytes of the target.
template <typename T>
struct CopyTokens {
  static constexpr int item_size = packed_size<T>;
  TokenExtent extent;
  std::int64_t from_tokens;
  std::int64_t first;
  const T* from;
  T* to;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, extent.padded / item_size);
    const Division row = divide(place.quotient, extent.tokens);
    const std::int64_t token = row.rest + first;
    Packed128 values{};
    if (token < from_tokens) {
      values = load128(from + (row.quotient * from_tokens + token) * extent.padded +
                       place.rest * item_size);
    }
    store128(to + item * item_size, values);
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

void tokens_parameter_gradients(Stream stream, DataType type, const TokenExtent& extent,
                                const void* dy, const TokenGradients& out) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.tokens * extent.padded / TokensParameterGradients<T>::item_size,
           TokensParameterGradients<T>{extent, static_cast<const T*>(dy), out});
  });
}

void copy_tokens(Stream stream, DataType type, const TokenExtent& extent, const void* from,
                 std::int64_t from_tokens, std::int64_t first, void* to) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * extent.tokens * extent.padded / packed_size<T>,
           CopyTokens<T>{extent, from_tokens, first, static_cast<const T*>(from),
                         static_cast<T*>(to)});
  });
}

}  // namespace lockstep::gpu
