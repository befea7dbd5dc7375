#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

namespace lockstep::cuda {
namespace {

/// One item per piece of an output pixel.
template <typename T>
struct PackImages {
  static constexpr int piece = piece_size<T>;
  std::int64_t channels;
  std::int64_t pieces;  ///< per pixel
  const float* images;
  T* out;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, pieces);
    const std::int64_t first = place.rest * piece;
    const float* const from = images + place.quotient * channels + first;
    Floats<piece> values;
    for (int i = 0; i < piece; ++i) values[i] = first + i < channels ? from[i] : 0.0F;
    store<piece>(out + item * piece, values);
  }
};

/// One item per piece of a pixel; its values are the means of `area` pixels.
template <typename T>
struct AvgPoolForward {
  static constexpr int piece = piece_size<T>;
  std::int64_t area;
  std::int64_t padded;
  const T* x;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded / piece);
    const T* const from = x + place.quotient * area * padded + place.rest * piece;
    constexpr int depth = 4;  // concurrent loads
    Floats<piece> sums = filled<piece>(0);
    std::int64_t pixel = 0;
    for (; pixel + depth <= area; pixel += depth) {
      Piece loaded[depth];
      for (int i = 0; i < depth; ++i) loaded[i] = read_piece(from + (pixel + i) * padded);
      for (int i = 0; i < depth; ++i) add(sums, unpack<T>(loaded[i]));
    }
    for (; pixel < area; ++pixel) add(sums, load<piece>(from + pixel * padded));
    for (int i = 0; i < piece; ++i) sums[i] /= static_cast<float>(area);
    store<piece>(y + item * piece, sums);
  }
  LOCKSTEP_HOST_DEVICE static void add(Floats<piece>& sums, const Floats<piece>& values) {
    for (int i = 0; i < piece; ++i) sums[i] += values[i];
  }
};
template <typename T>
struct AvgPoolBackward {
  static constexpr int piece = piece_size<T>;
  std::int64_t area;
  std::int64_t padded;
  const T* dy;
  T* dx;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded / piece);
    const std::int64_t image = divide(place.quotient, area).quotient;
    Floats<piece> values = load<piece>(dy + image * padded + place.rest * piece);
    for (int i = 0; i < piece; ++i) values[i] /= static_cast<float>(area);
    store<piece>(dx + item * piece, values);
  }
};

/// One item per piece of a sample's features.
template <typename T>
struct FlattenForward {
  static constexpr int piece = piece_size<T>;
  std::int64_t area;
  std::int64_t channels;
  std::int64_t padded;
  std::int64_t padded_features;
  const T* x;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded_features / piece);
    const T* const from = x + place.quotient * area * padded;
    Floats<piece> values;
    for (int i = 0; i < piece; ++i) {
      const Division feature = divide(place.rest * piece + i, area);
      values[i] = feature.quotient < channels
                      ? to_float(from[feature.rest * padded + feature.quotient])
                      : 0.0F;
    }
    store<piece>(y + item * piece, values);
  }
};
/// One item per piece of a pixel.
template <typename T>
struct FlattenBackward {
  static constexpr int piece = piece_size<T>;
  std::int64_t area;
  std::int64_t channels;
  std::int64_t padded;
  std::int64_t padded_features;
  const T* dy;
  T* dx;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded / piece);
    const Division pixel = divide(place.quotient, area);
    const T* const from = dy + pixel.quotient * padded_features + pixel.rest;
    Floats<piece> values;
    for (int i = 0; i < piece; ++i) {
      const std::int64_t channel = place.rest * piece + i;
      values[i] = channel < channels ? to_float(from[channel * area]) : 0.0F;
    }
    store<piece>(dx + item * piece, values);
  }
};

}  // namespace

void pack_images(Stream stream, DataType type, const ImageExtent& extent, const float* images,
                 void* out) {
  with_type(type, [&]<typename T>(T*) {
    const std::int64_t pieces = extent.padded / piece_size<T>;
    launch(stream, extent.batch * extent.height * extent.width * pieces,
           PackImages<T>{extent.channels, pieces, images, static_cast<T*>(out)});
  });
}

void global_avg_pool_forward(Stream stream, DataType type, std::int64_t batch, std::int64_t area,
                             std::int64_t padded, const void* x, void* y) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, batch * padded / piece_size<T>,
           AvgPoolForward<T>{area, padded, static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

void global_avg_pool_backward(Stream stream, DataType type, std::int64_t batch, std::int64_t area,
                              std::int64_t padded, const void* dy, void* dx) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, batch * area * padded / piece_size<T>,
           AvgPoolBackward<T>{area, padded, static_cast<const T*>(dy), static_cast<T*>(dx)});
  });
}

void flatten_forward(Stream stream, DataType type, const ImageExtent& extent,
                     std::int64_t padded_features, const void* x, void* y) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * padded_features / piece_size<T>,
           FlattenForward<T>{extent.height * extent.width, extent.channels, extent.padded,
                             padded_features, static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

void flatten_backward(Stream stream, DataType type, const ImageExtent& extent,
                      std::int64_t padded_features, const void* dy, void* dx) {
  const std::int64_t area = extent.height * extent.width;
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * area * extent.padded / piece_size<T>,
           FlattenBackward<T>{area, extent.channels, extent.padded, padded_features,
                              static_cast<const T*>(dy), static_cast<T*>(dx)});
  });
}

}  // namespace lockstep::cuda
