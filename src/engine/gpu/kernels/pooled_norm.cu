#include "pooled_norm.hpp"

#include "channel_norm.hpp"
#include "divisor.hpp"
#include "norm_gradients.hpp"
#include "row_reduction.hpp"
#include "window_positions.hpp"

namespace lockstep::gpu {
namespace {

/// The images and their windows: window (i, j) has pixel (2 i, 2 j) at its center.
struct WindowGrid {
  int height;
  int width;
  int out_height;
  int out_width;
  std::int64_t padded;
  std::int64_t row;      ///< values of a row of pixels
  std::int64_t out_row;  ///< and of windows

  [[nodiscard]] static WindowGrid of(const PoolExtent& extent) {
    return {.height = static_cast<int>(extent.height),
            .width = static_cast<int>(extent.width),
            .out_height = static_cast<int>(extent.out_height),
            .out_width = static_cast<int>(extent.out_width),
            .padded = extent.padded,
            .row = extent.width * extent.padded,
            .out_row = extent.out_width * extent.padded};
  }
};

/// Place of a pixel or a window, from its number in the batch.
struct Place {
  std::uint32_t image;
  int row;
  int column;
  /// Number of its first channel, in images of height x width.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t first(int height, int width,
                                                        std::int64_t padded) const {
    const std::uint32_t rows =
        image * static_cast<std::uint32_t>(height) + static_cast<std::uint32_t>(row);
    const std::uint32_t number =
        rows * static_cast<std::uint32_t>(width) + static_cast<std::uint32_t>(column);
    return number * padded;
  }
};
struct PlaceOf {
  Divisor width;
  Divisor height;
  [[nodiscard]] static PlaceOf pixels(const PoolExtent& extent) {
    return {Divisor(static_cast<std::uint32_t>(extent.width)),
            Divisor(static_cast<std::uint32_t>(extent.height))};
  }
  [[nodiscard]] static PlaceOf windows(const PoolExtent& extent) {
    return {Divisor(static_cast<std::uint32_t>(extent.out_width)),
            Divisor(static_cast<std::uint32_t>(extent.out_height))};
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Place operator()(std::int64_t number) const {
    const auto pixel = static_cast<std::uint32_t>(number);
    const std::uint32_t row = width.quotient(pixel);
    const std::uint32_t image = height.quotient(row);
    return {.image = image,
            .row = static_cast<int>(row - image * height.value()),
            .column = static_cast<int>(pixel - row * width.value())};
  }
};
/// Number of the first channel of a window, and of the pixel at its center.
LOCKSTEP_HOST_DEVICE std::int64_t first_of_window(const WindowGrid& grid, const Place& place) {
  return place.first(grid.out_height, grid.out_width, grid.padded);
}
LOCKSTEP_HOST_DEVICE std::int64_t first_of_center(const WindowGrid& grid, const Place& place) {
  const Place center{place.image, 2 * place.row, 2 * place.column};
  return center.first(grid.height, grid.width, grid.padded);
}

std::int64_t windows_of(const PoolExtent& extent) {
  return extent.batch * extent.out_height * extent.out_width;
}

/// Items of 16 bytes of several windows.
template <typename T>
[[nodiscard]] ColumnItems window_items(const PoolExtent& extent) {
  return column_items(windows_of(extent), extent.padded / packed_size<T>);
}

/// An item is 16 bytes of several outputs.
template <typename T>
struct PooledApply {
  static constexpr int item_size = packed_size<T>;
  WindowGrid grid;
  PlaceOf place_of;
  std::int64_t windows;
  ColumnItems items;
  const T* x;
  Normalization norm;
  T* y;
  std::uint8_t* positions;

  /// A window's values. Those outside the image are replaced by others of the window.
  struct Loaded {
    Packed128 values[9];
    int rows[3];  ///< terms of their positions
    int columns[3];
  };
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const std::int64_t channel = (item - chunk * items.columns) * item_size;
    const auto channels = ChannelNorm<T, item_size>::load(norm, ReadFrom<item_size>{channel});
    items.for_rows_of<1>(
        chunk, windows, [&](std::int64_t window) { return read(place_of(window), channel); },
        [&](std::int64_t window, const Loaded& loaded) {
          Largest<T> largest;
          largest.clear();
          for (int i = 0; i < 9; ++i) {
            auto values = unpack<T>(loaded.values[i]);
            channels.normalize(values);
            largest.take(values, loaded.rows[i / 3] + loaded.columns[i % 3]);
          }
          const std::int64_t at = window * grid.padded + channel;
          store128(y + at, largest.values());
          if (positions != nullptr) write_together(positions + at, largest.positions());
        });
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Loaded read(const Place& place, std::int64_t channel) const {
    const bool has_up = place.row > 0;
    const bool has_down = 2 * place.row + 1 < grid.height;
    const bool has_left = place.column > 0;
    const bool has_right = 2 * place.column + 1 < grid.width;
    const T* const center = x + first_of_center(grid, place) + channel;
    const T* const lines[3] = {center - (has_up ? grid.row : 0), center,
                               center + (has_down ? grid.row : 0)};
    const std::int64_t beside[3] = {has_left ? -grid.padded : 0, 0, has_right ? grid.padded : 0};
    Loaded loaded{.values = {},
                  .rows = {has_up ? 6 : 3, 3, has_down ? 0 : 3},
                  .columns = {has_left ? 2 : 1, 1, has_right ? 0 : 1}};
    for (int i = 0; i < 9; ++i) loaded.values[i] = load128(lines[i / 3] + beside[i % 3]);
    return loaded;
  }
};

/// The gradients of the windows that cover a pixel: 16 bytes of at most four windows.
template <typename T>
struct PixelWindows {
  static constexpr int count = packed_size<T>;
  Packed128 gradients[4];
  Positions<count> positions[4];
  int position;  ///< of the pixel in the first window
  int right;     ///< and in the second
  bool below;    ///< whether there are two more windows below them

  [[nodiscard]] LOCKSTEP_HOST_DEVICE static PixelWindows read(const WindowGrid& grid,
                                                              const Place& place, const T* dy,
                                                              const std::uint8_t* positions,
                                                              std::int64_t channel) {
    const int odd_row = place.row & 1;
    const int odd_column = place.column & 1;
    const int window_row = place.row >> 1;
    const int window_column = place.column >> 1;
    const bool has_right = odd_column != 0 && window_column + 1 < grid.out_width;
    PixelWindows result{};
    result.position = 4 - 3 * odd_row - odd_column;
    result.right = has_right ? 5 - 3 * odd_row : unmatched_position;
    result.below = odd_row != 0 && window_row + 1 < grid.out_height;
    const std::int64_t first =
        first_of_window(grid, {place.image, window_row, window_column}) + channel;
    const std::int64_t second = has_right ? first + grid.padded : first;
    result.load(0, dy, positions, first);
    result.load(1, dy, positions, second);
    if (result.below) {
      result.load(2, dy, positions, first + grid.out_row);
      result.load(3, dy, positions, second + grid.out_row);
    }
    return result;
  }
  /// Rounded as stored.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Floats<count> sum() const {
    constexpr int two_rows = 6;
    auto sums = filled<count>(0);
    add_matching<T>(sums, gradients[0], positions[0], position);
    add_matching<T>(sums, gradients[1], positions[1], right);
    if (below) {
      add_matching<T>(sums, gradients[2], positions[2], position + two_rows);
      add_matching<T>(sums, gradients[3], positions[3], right + two_rows);
    }
    return rounded<T>(sums);
  }

 private:
  LOCKSTEP_HOST_DEVICE void load(int window, const T* dy, const std::uint8_t* from,
                                 std::int64_t at) {
    gradients[window] = load128(dy + at);
    positions[window] = read_together<Positions<count>>(from + at);
  }
};

/// The sums of ChunkGradients, in the same order.
template <typename T>
struct ChunkPooledGradients {
  static constexpr int parts = vec8_size / packed_size<T>;
  static constexpr bool few_blocks = true;
  using Partial = Vec8Sums<2>;
  RowReduction reduction;
  WindowGrid grid;
  PlaceOf place_of;
  const T* dy;
  const std::uint8_t* positions;
  const T* x;
  const float* mean;
  float* partials;

  struct Loaded {
    RawVec8<T> x;
    PixelWindows<T> windows[parts];
  };
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int block_column,
                                                     int lane) const {
    const std::int64_t channel = reduction.channel_of(block, block_column);
    Partial result;
    result.clear();
    if (channel >= reduction.padded) return result;
    const Vec8 center = load<vec8_size>(mean + channel);
    reduction.for_rows_of<packed_size<T> / 4>(
        block, lane, [&](std::int64_t row) { return read(row, channel); },
        [&](std::int64_t, const Loaded& loaded) {
          Vec8 g;
          for (int part = 0; part < parts; ++part) {
            const auto sums = loaded.windows[part].sum();
            for (int i = 0; i < packed_size<T>; ++i) g[part * packed_size<T> + i] = sums[i];
          }
          const Vec8 values = loaded.x.floats();
          for (int i = 0; i < vec8_size; ++i) {
            result.sums[0][i] += g[i];
            result.sums[1][i] += g[i] * (values[i] - center[i]);
          }
        });
    return result;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Loaded read(std::int64_t row, std::int64_t channel) const {
    Loaded loaded{read_vec8(x + row * reduction.padded + channel), {}};
    const Place place = place_of(row);
    for (int part = 0; part < parts; ++part) {
      loaded.windows[part] =
          PixelWindows<T>::read(grid, place, dy, positions, channel + part * packed_size<T>);
    }
    return loaded;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int block_column,
                                   const Partial& sums) const {
    store_partials(reduction, block, reduction.channel_of(block, block_column), sums, partials);
  }
};

/// An item is 16 bytes of several squares of two by two pixels, which four windows cover: that of
/// the square's number and those to its right and below.
template <typename T>
struct PooledBackwardApply {
  static constexpr int item_size = packed_size<T>;
  WindowGrid grid;
  PlaceOf place_of;
  std::int64_t windows;
  ColumnItems items;
  const T* dy;
  const std::uint8_t* positions;
  NormGradient norm;
  float share;

  struct Loaded {
    Place place;
    Packed128 x[4];
    Packed128 gradients[4];
    Positions<item_size> positions[4];
  };
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t chunk = items.chunk(item);
    const std::int64_t channel = (item - chunk * items.columns) * item_size;
    const auto channels =
        ChannelGradient<T, item_size>::load(norm, share, ReadFrom<item_size>{channel});
    items.for_rows_of<1>(
        chunk, windows, [&](std::int64_t window) { return read(place_of(window), channel); },
        [&](std::int64_t, const Loaded& loaded) {
          T* const dx = static_cast<T*>(norm.dx) + first_of_center(grid, loaded.place) + channel;
          for (int pixel = 0; pixel < 4; ++pixel) {
            if (!is_within(loaded.place, pixel)) continue;
            const auto g = rounded<T>(gradient(loaded, pixel));
            store128(dx + offset(pixel), pack<T>(channels.of(g, unpack<T>(loaded.x[pixel]))));
          }
        });
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool is_within(const Place& place, int pixel) const {
    return 2 * place.row + pixel / 2 < grid.height && 2 * place.column + pixel % 2 < grid.width;
  }
  /// Of a pixel in a square, in values.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t offset(int pixel) const {
    return pixel / 2 * grid.row + pixel % 2 * grid.padded;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Loaded read(const Place& place, std::int64_t channel) const {
    Loaded loaded;
    loaded.place = place;
    const std::int64_t x = first_of_center(grid, place) + channel;
    const std::int64_t window = first_of_window(grid, place) + channel;
    for (int i = 0; i < 4; ++i) {
      const bool has_pixel = is_within(place, i);
      loaded.x[i] = load128(static_cast<const T*>(norm.x) + (has_pixel ? x + offset(i) : x));
      const bool has_window =
          place.row + i / 2 < grid.out_height && place.column + i % 2 < grid.out_width;
      const std::int64_t at =
          has_window ? window + i / 2 * grid.out_row + i % 2 * grid.padded : window;
      loaded.gradients[i] = load128(dy + at);
      loaded.positions[i] = read_together<Positions<item_size>>(positions + at);
      for (std::uint32_t& word : loaded.positions[i].words) {
        if (!has_window) word = unmatched_position * 0x01010101U;
      }
    }
    return loaded;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static Floats<item_size> gradient(const Loaded& loaded,
                                                                       int pixel) {
    auto sums = filled<item_size>(0);
    for (int window = 0; window < 4; ++window) {
      const int row = pixel / 2 + 1 - window / 2 * 2;
      const int column = pixel % 2 + 1 - window % 2 * 2;
      if (row < 0 || column < 0) continue;
      add_matching<T>(sums, loaded.gradients[window], loaded.positions[window],
                      8 - 3 * row - column);
    }
    return sums;
  }
};

}  // namespace

void pooled_norm_forward(Stream stream, DataType type, const PoolExtent& extent, const void* x,
                         const Normalization& norm, void* y, std::uint8_t* positions) {
  with_type(type, [&]<typename T>(T*) {
    const ColumnItems items = window_items<T>(extent);
    launch(stream, items.count(),
           PooledApply<T>{WindowGrid::of(extent), PlaceOf::windows(extent), windows_of(extent),
                          items, static_cast<const T*>(x), norm, static_cast<T*>(y), positions});
  });
}

void pooled_norm_backward_sums(Stream stream, DataType type, const PoolExtent& extent,
                               const PooledGradient& incoming, const NormSums& of,
                               void* workspace) {
  const RowReduction reduction = row_reduction({.rows = extent.batch * extent.height * extent.width,
                                                .channels = extent.padded,
                                                .padded = extent.padded,
                                                .gpu = extent.gpu});
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(stream, reduction.blocks(),
                  ChunkPooledGradients<T>{
                      reduction, WindowGrid::of(extent), PlaceOf::pixels(extent),
                      static_cast<const T*>(incoming.dy), incoming.positions,
                      static_cast<const T*>(of.x), of.norm.mean, static_cast<float*>(workspace)});
  });
  combine_gradients(stream, reduction, of, workspace);
}

void pooled_norm_backward_apply(Stream stream, DataType type, const PoolExtent& extent,
                                const PooledGradient& incoming, double elements,
                                const NormGradient& of) {
  with_type(type, [&]<typename T>(T*) {
    const ColumnItems items = window_items<T>(extent);
    launch(stream, items.count(),
           PooledBackwardApply<T>{WindowGrid::of(extent), PlaceOf::windows(extent),
                                  windows_of(extent), items, static_cast<const T*>(incoming.dy),
                                  incoming.positions, of, static_cast<float>(1.0 / elements)});
  });
}

}  // namespace lockstep::gpu
