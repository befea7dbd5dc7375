#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

namespace lockstep::gpu {
namespace {

/// One item per 16 bytes of an output pixel.
template <typename T>
struct PackImages {
  static constexpr int item_size = packed_size<T>;
  std::int64_t channels;
  std::int64_t items_per_pixel;
  const float* images;
  T* out;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, items_per_pixel);
    const std::int64_t first = place.rest * item_size;
    const float* const from = images + place.quotient * channels + first;
    Floats<item_size> values;
    for (int i = 0; i < item_size; ++i) values[i] = first + i < channels ? from[i] : 0.0F;
    store<item_size>(out + item * item_size, values);
  }
};

/// One item per 16 bytes of a pixel; its values are the means of `area` pixels.
template <typename T>
struct AvgPoolForward {
  static constexpr int item_size = packed_size<T>;
  std::int64_t area;
  std::int64_t padded;
  const T* x;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded / item_size);
    const T* const from = x + place.quotient * area * padded + place.rest * item_size;
    constexpr int depth = 4;  // concurrent loads
    Floats<item_size> sums = filled<item_size>(0);
    std::int64_t pixel = 0;
    for (; pixel + depth <= area; pixel += depth) {
      Packed128 loaded[depth];
      for (int i = 0; i < depth; ++i) loaded[i] = load128(from + (pixel + i) * padded);
      for (int i = 0; i < depth; ++i) add(sums, unpack<T>(loaded[i]));
    }
    for (; pixel < area; ++pixel) add(sums, load<item_size>(from + pixel * padded));
    for (int i = 0; i < item_size; ++i) sums[i] /= static_cast<float>(area);
    store<item_size>(y + item * item_size, sums);
  }
  LOCKSTEP_HOST_DEVICE static void add(Floats<item_size>& sums, const Floats<item_size>& values) {
    for (int i = 0; i < item_size; ++i) sums[i] += values[i];
  }
};
template <typename T>
struct AvgPoolBackward {
  static constexpr int item_size = packed_size<T>;
  std::int64_t area;
  std::int64_t padded;
  const T* dy;
  T* dx;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded / item_size);
    const std::int64_t image = divide(place.quotient, area).quotient;
    Floats<item_size> values = load<item_size>(dy + image * padded + place.rest * item_size);
    for (int i = 0; i < item_size; ++i) values[i] /= static_cast<float>(area);
    store<item_size>(dx + item * item_size, values);
  }
};

/// One item per 16 bytes of a sample's features.
template <typename T>
struct FlattenForward {
  static constexpr int item_size = packed_size<T>;
  std::int64_t area;
  std::int64_t channels;
  std::int64_t padded;
  std::int64_t padded_features;
  const T* x;
  T* y;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded_features / item_size);
    const T* const from = x + place.quotient * area * padded;
    Floats<item_size> values;
    for (int i = 0; i < item_size; ++i) {
      const Division feature = divide(place.rest * item_size + i, area);
      values[i] = feature.quotient < channels
                      ? to_float(from[feature.rest * padded + feature.quotient])
                      : 0.0F;
    }
    store<item_size>(y + item * item_size, values);
  }
};
/// One item per 16 bytes of a pixel.
template <typename T>
struct FlattenBackward {
  static constexpr int item_size = packed_size<T>;
  std::int64_t area;
  std::int64_t channels;
  std::int64_t padded;
  std::int64_t padded_features;
  const T* dy;
  T* dx;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division place = divide(item, padded / item_size);
    const Division pixel = divide(place.quotient, area);
    const T* const from = dy + pixel.quotient * padded_features + pixel.rest;
    Floats<item_size> values;
    for (int i = 0; i < item_size; ++i) {
      const std::int64_t channel = place.rest * item_size + i;
      values[i] = channel < channels ? to_float(from[channel * area]) : 0.0F;
    }
    store<item_size>(dx + item * item_size, values);
  }
};

}  // namespace

void pack_images(Stream stream, DataType type, const ImageExtent& extent, const float* images,
                 void* out) {
  with_type(type, [&]<typename T>(T*) {
    const std::int64_t items_per_pixel = extent.padded / packed_size<T>;
    launch(stream, extent.batch * extent.height * extent.width * items_per_pixel,
           PackImages<T>{extent.channels, items_per_pixel, images, static_cast<T*>(out)});
  });
}

void global_avg_pool_forward(Stream stream, DataType type, std::int64_t batch, std::int64_t area,
                             std::int64_t padded, const void* x, void* y) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, batch * padded / packed_size<T>,
           AvgPoolForward<T>{area, padded, static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

void global_avg_pool_backward(Stream stream, DataType type, std::int64_t batch, std::int64_t area,
                              std::int64_t padded, const void* dy, void* dx) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, batch * area * padded / packed_size<T>,
           AvgPoolBackward<T>{area, padded, static_cast<const T*>(dy), static_cast<T*>(dx)});
  });
}

void flatten_forward(Stream stream, DataType type, const ImageExtent& extent,
                     std::int64_t padded_features, const void* x, void* y) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * padded_features / packed_size<T>,
           FlattenForward<T>{extent.height * extent.width, extent.channels, extent.padded,
                             padded_features, static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

void flatten_backward(Stream stream, DataType type, const ImageExtent& extent,
                      std::int64_t padded_features, const void* dy, void* dx) {
  const std::int64_t area = extent.height * extent.width;
  with_type(type, [&]<typename T>(T*) {
    launch(stream, extent.batch * area * extent.padded / packed_size<T>,
           FlattenBackward<T>{area, extent.channels, extent.padded, padded_features,
                              static_cast<const T*>(dy), static_cast<T*>(dx)});
  });
}

}  // namespace lockstep::gpu
