#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

namespace lockstep::gpu {
namespace {

/// One index for each value of an item.
template <int count>
struct alignas(count) Indices {
  std::uint8_t values[count];
};

/// A pixel of one image of a batch and the first of an item's channels.
struct ItemPlace {
  std::int64_t image;
  int row;
  int column;
  std::int64_t channel;
};
LOCKSTEP_HOST_DEVICE ItemPlace place_of(std::int64_t item, std::int64_t height, std::int64_t width,
                                        std::int64_t padded, int item_size) {
  const auto number = static_cast<std::uint32_t>(item);
  const auto items_per_pixel =
      static_cast<std::uint32_t>(padded) / static_cast<std::uint32_t>(item_size);
  const std::uint32_t pixel = number / items_per_pixel;
  const std::uint32_t row = pixel / static_cast<std::uint32_t>(width);
  const std::uint32_t image = row / static_cast<std::uint32_t>(height);
  return {.image = image,
          .row = static_cast<int>(row - image * static_cast<std::uint32_t>(height)),
          .column = static_cast<int>(pixel - row * static_cast<std::uint32_t>(width)),
          .channel = std::int64_t{number - pixel * items_per_pixel} * item_size};
}

/// The first window that covers `at`, and the one after the last.
LOCKSTEP_HOST_DEVICE int first_window(const PoolExtent& extent, int at) {
  const int reach = at + static_cast<int>(extent.padding) - static_cast<int>(extent.kernel) + 1;
  return reach <= 0 ? 0 : ceil_div(reach, static_cast<int>(extent.stride));
}
LOCKSTEP_HOST_DEVICE int last_window(const PoolExtent& extent, int at, std::int64_t windows) {
  const int last = (at + static_cast<int>(extent.padding)) / static_cast<int>(extent.stride) + 1;
  return last < windows ? last : static_cast<int>(windows);
}

LOCKSTEP_HOST_DEVICE bool is_within(int at, std::int64_t extent) {
  return at >= 0 && at < static_cast<int>(extent);
}
LOCKSTEP_HOST_DEVICE int clamped(int at, std::int64_t extent) {
  return at < 0 ? 0 : at < static_cast<int>(extent) ? at : static_cast<int>(extent) - 1;
}

/// One item per 16 bytes of an output pixel. `fixed_kernel` is the kernel size, or 0 if not
/// constant.
template <typename T, int fixed_kernel>
struct Forward {
  static constexpr int item_size = packed_size<T>;
  PoolExtent extent;
  const T* x;
  T* y;
  std::uint8_t* index;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const ItemPlace place =
        place_of(item, extent.out_height, extent.out_width, extent.padded, item_size);
    const int kernel = fixed_kernel != 0 ? fixed_kernel : static_cast<int>(extent.kernel);
    const int top = place.row * static_cast<int>(extent.stride) - static_cast<int>(extent.padding);
    const int left =
        place.column * static_cast<int>(extent.stride) - static_cast<int>(extent.padding);
    const T* const image = x + place.image * extent.height * extent.width * extent.padded;
    constexpr int concurrent = fixed_kernel != 0 ? fixed_kernel * fixed_kernel : 1;  // loads
    Floats<item_size> largest = filled<item_size>(0);
    Indices<item_size> taken{};
    bool is_first = true;
    for (int begin = 0; begin < kernel * kernel; begin += concurrent) {
      Packed128 loaded[concurrent];
      for (int i = 0; i < concurrent; ++i) {
        const std::int64_t h = clamped(top + (begin + i) / kernel, extent.height);
        const std::int64_t w = clamped(left + (begin + i) % kernel, extent.width);
        loaded[i] = load128(image + (h * extent.width + w) * extent.padded + place.channel);
      }
      for (int i = 0; i < concurrent; ++i) {
        if (!is_within(top + (begin + i) / kernel, extent.height) ||
            !is_within(left + (begin + i) % kernel, extent.width)) {
          continue;
        }
        take(unpack<T>(loaded[i]), begin + i, is_first, largest, taken);
        is_first = false;
      }
    }
    store<item_size>(y + item * item_size, largest);
    if (index != nullptr) write_together(index + item * item_size, taken);
  }
  LOCKSTEP_HOST_DEVICE static void take(const Floats<item_size>& values, int place, bool is_first,
                                        Floats<item_size>& largest, Indices<item_size>& taken) {
    for (int i = 0; i < item_size; ++i) {
      const bool is_nan = values[i] != values[i];
      const bool had_nan = largest[i] != largest[i];
      if (is_first || values[i] > largest[i] || (is_nan && !had_nan)) {
        largest[i] = values[i];
        taken.values[i] = static_cast<std::uint8_t>(place);
      }
    }
  }
};

/// One item per 16 bytes of an input pixel; it visits the windows that cover the pixel.
template <typename T>
struct Backward {
  static constexpr int item_size = packed_size<T>;
  PoolExtent extent;
  const T* dy;
  const std::uint8_t* index;
  T* dx;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const ItemPlace place = place_of(item, extent.height, extent.width, extent.padded, item_size);
    const int last_row = last_window(extent, place.row, extent.out_height);
    const int first_column = first_window(extent, place.column);
    const int last_column = last_window(extent, place.column, extent.out_width);
    Floats<item_size> sums = filled<item_size>(0);
    for (int h = first_window(extent, place.row); h < last_row; ++h) {
      for (int w = first_column; w < last_column; ++w) {
        const std::int64_t at =
            ((place.image * extent.out_height + h) * extent.out_width + w) * extent.padded +
            place.channel;
        const int r = place.row + static_cast<int>(extent.padding - h * extent.stride);
        const int s = place.column + static_cast<int>(extent.padding - w * extent.stride);
        const int here = r * static_cast<int>(extent.kernel) + s;
        const Indices<item_size> taken = read_together<Indices<item_size>>(index + at);
        const Floats<item_size> gradients = load<item_size>(dy + at);
        for (int i = 0; i < item_size; ++i) {
          sums[i] += taken.values[i] == here ? gradients[i] : 0.0F;
        }
      }
    }
    store<item_size>(dx + item * item_size, sums);
  }
};

/// The same for windows of 3x3 pixels, a stride of 2 and a padding of 1: one item per 16 bytes of
/// two by two input pixels, which four windows cover. Window (i, j) has input pixel (2 i, 2 j) at
/// its center.
template <typename T>
struct BackwardByFours {
  static constexpr int item_size = packed_size<T>;
  PoolExtent extent;
  const T* dy;
  const std::uint8_t* index;
  T* dx;

  [[nodiscard]] static bool fits(const PoolExtent& extent) {
    return extent.kernel == 3 && extent.stride == 2 && extent.padding == 1;
  }
  [[nodiscard]] std::int64_t items() const {
    return extent.batch * extent.out_height * extent.out_width * extent.padded / item_size;
  }
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const ItemPlace place =
        place_of(item, extent.out_height, extent.out_width, extent.padded, item_size);
    Packed128 gradients[4];
    Indices<item_size> taken[4];
    for (int window = 0; window < 4; ++window) {
      const std::int64_t h = clamped(place.row + window / 2, extent.out_height);
      const std::int64_t w = clamped(place.column + window % 2, extent.out_width);
      const std::int64_t at =
          ((place.image * extent.out_height + h) * extent.out_width + w) * extent.padded +
          place.channel;
      gradients[window] = load128(dy + at);
      taken[window] = read_together<Indices<item_size>>(index + at);
    }
    Floats<item_size> sums[4];
    for (Floats<item_size>& sum : sums) sum = filled<item_size>(0);
    for (int window = 0; window < 4; ++window) {
      const int down = window / 2;
      const int right = window % 2;
      if (place.row + down >= extent.out_height || place.column + right >= extent.out_width) {
        continue;
      }
      const Floats<item_size> of_window = unpack<T>(gradients[window]);
      for (int pixel = 0; pixel < 4; ++pixel) {
        const int r = pixel / 2 + 1 - 2 * down;
        const int s = pixel % 2 + 1 - 2 * right;
        if (r < 0 || s < 0) continue;
        for (int i = 0; i < item_size; ++i) {
          sums[pixel][i] += taken[window].values[i] == r * 3 + s ? of_window[i] : 0.0F;
        }
      }
    }
    for (int pixel = 0; pixel < 4; ++pixel) {
      const std::int64_t h = 2 * place.row + pixel / 2;
      const std::int64_t w = 2 * place.column + pixel % 2;
      if (h >= extent.height || w >= extent.width) continue;
      store<item_size>(dx + ((place.image * extent.height + h) * extent.width + w) * extent.padded +
                           place.channel,
                       sums[pixel]);
    }
  }
};

/// Number of pixels over which a window at an output pixel averages.
LOCKSTEP_HOST_DEVICE float window_area(const PoolExtent& extent, std::int64_t row,
                                       std::int64_t column) {
  if (!extent.partial_windows) return static_cast<float>(extent.kernel * extent.kernel);
  const auto covered = [&](std::int64_t at, std::int64_t size) {
    const std::int64_t begin = at * extent.stride - extent.padding;
    const std::int64_t end = begin + extent.kernel < size ? begin + extent.kernel : size;
    return end - (begin < 0 ? 0 : begin);
  };
  return static_cast<float>(covered(row, extent.height) * covered(column, extent.width));
}

/// One item per 16 bytes of an output pixel.
template <typename T>
struct AverageForward {
  static constexpr int item_size = packed_size<T>;
  PoolExtent extent;
  const T* x;
  T* y;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const ItemPlace place =
        place_of(item, extent.out_height, extent.out_width, extent.padded, item_size);
    const std::int64_t top = place.row * extent.stride - extent.padding;
    const std::int64_t left = place.column * extent.stride - extent.padding;
    Floats<item_size> sums = filled<item_size>(0);
    for (std::int64_t h = top < 0 ? 0 : top; h < top + extent.kernel && h < extent.height; ++h) {
      for (std::int64_t w = left < 0 ? 0 : left; w < left + extent.kernel && w < extent.width;
           ++w) {
        const std::int64_t pixel = (place.image * extent.height + h) * extent.width + w;
        const Floats<item_size> values = load<item_size>(x + pixel * extent.padded + place.channel);
        for (int i = 0; i < item_size; ++i) sums[i] += values[i];
      }
    }
    const float area = window_area(extent, place.row, place.column);
    for (int i = 0; i < item_size; ++i) sums[i] /= area;
    store<item_size>(y + item * item_size, sums);
  }
};

/// One item per 16 bytes of an input pixel; it visits the windows that cover the pixel.
template <typename T>
struct AverageBackward {
  static constexpr int item_size = packed_size<T>;
  PoolExtent extent;
  const T* dy;
  T* dx;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const ItemPlace place = place_of(item, extent.height, extent.width, extent.padded, item_size);
    const int last_row = last_window(extent, place.row, extent.out_height);
    const int last_column = last_window(extent, place.column, extent.out_width);
    Floats<item_size> sums = filled<item_size>(0);
    for (int h = first_window(extent, place.row); h < last_row; ++h) {
      for (int w = first_window(extent, place.column); w < last_column; ++w) {
        const std::int64_t pixel = (place.image * extent.out_height + h) * extent.out_width + w;
        const Floats<item_size> gradients =
            load<item_size>(dy + pixel * extent.padded + place.channel);
        const float area = window_area(extent, h, w);
        for (int i = 0; i < item_size; ++i) sums[i] += gradients[i] / area;
      }
    }
    store<item_size>(dx + item * item_size, sums);
  }
};

}  // namespace

void max_pool_forward(Stream stream, DataType type, const PoolExtent& extent, const void* x,
                      void* y, std::uint8_t* index) {
  const std::int64_t values = extent.batch * extent.out_height * extent.out_width * extent.padded;
  with_type(type, [&]<typename T>(T*) {
    const auto* const from = static_cast<const T*>(x);
    auto* const to = static_cast<T*>(y);
    const std::int64_t items = values / packed_size<T>;
    switch (extent.kernel) {
      case 2:
        return launch(stream, items, Forward<T, 2>{extent, from, to, index});
      case 3:
        return launch(stream, items, Forward<T, 3>{extent, from, to, index});
      default:
        return launch(stream, items, Forward<T, 0>{extent, from, to, index});
    }
  });
}

void max_pool_backward(Stream stream, DataType type, const PoolExtent& extent, const void* dy,
                       const std::uint8_t* index, void* dx) {
  const std::int64_t values = extent.batch * extent.height * extent.width * extent.padded;
  with_type(type, [&]<typename T>(T*) {
    const auto* const from = static_cast<const T*>(dy);
    auto* const to = static_cast<T*>(dx);
    if (const BackwardByFours<T> fours{extent, from, index, to}; fours.fits(extent)) {
      return launch(stream, fours.items(), fours);
    }
    launch(stream, values / packed_size<T>, Backward<T>{extent, from, index, to});
  });
}

void avg_pool_forward(Stream stream, DataType type, const PoolExtent& extent, const void* x,
                      void* y) {
  const std::int64_t values = extent.batch * extent.out_height * extent.out_width * extent.padded;
  with_type(type, [&]<typename T>(T*) {
    launch(stream, values / packed_size<T>,
           AverageForward<T>{extent, static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

void avg_pool_backward(Stream stream, DataType type, const PoolExtent& extent, const void* dy,
                       void* dx) {
  const std::int64_t values = extent.batch * extent.height * extent.width * extent.padded;
  with_type(type, [&]<typename T>(T*) {
    launch(stream, values / packed_size<T>,
           AverageBackward<T>{extent, static_cast<const T*>(dy), static_cast<T*>(dx)});
  });
}

}  // namespace lockstep::gpu
