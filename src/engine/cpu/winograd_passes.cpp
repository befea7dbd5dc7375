#include "winograd_passes.hpp"

#include "vector_types.hpp"
#include "winograd_transforms.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

namespace lockstep::cpu {
namespace {

template <typename Image, typename Pixel>
using SameConst = std::conditional_t<std::is_const_v<Image>, const Pixel, Pixel>;

template <typename V, int rows, int columns = rows>
using Tile = std::array<std::array<V, columns>, rows>;

/// Applies a transform along an axis of a tile: to[i'][j] from from[i][j], for all j.
template <typename V, int from_rows, int columns, typename Transform>
LOCKSTEP_INLINED inline auto along_columns(const Tile<V, from_rows, columns>& from,
                                           const Transform& transform) {
  constexpr auto rows = std::tuple_size_v<decltype(transform(std::array<V, from_rows>{}))>;
  Tile<V, rows, columns> to;
  for (int j = 0; j < columns; ++j) {
    std::array<V, from_rows> column;
    for (int i = 0; i < from_rows; ++i) column[i] = from[i][j];
    const auto transformed = transform(column);
    for (std::size_t i = 0; i < rows; ++i) to[i][j] = transformed[i];
  }
  return to;
}

/// Pixels of a tile that lie in the image: rows and columns [first, last).
struct Inside {
  std::ptrdiff_t top;
  std::ptrdiff_t bottom;
  std::ptrdiff_t left;
  std::ptrdiff_t right;
};

/// Calls loop(matrix row, address of the tile's first pixel, inside) for each tile, whose windows
/// have `size` x `size` pixels and begin `padding` pixels before the tile.
template <typename T, typename Loop>
LOCKSTEP_INLINED inline void for_tiles(const PixelLayout& layout, T* image, const TileGrid& grid,
                                       const TileRange& range, int size, std::int64_t padding,
                                       const Loop& loop) {
  for (std::int64_t tile = range.first; tile < range.last; ++tile) {
    const std::int64_t top = tile / grid.columns % grid.rows * grid.outputs - padding;
    const std::int64_t left = tile % grid.columns * grid.outputs - padding;
    T* const first = image + tile / (grid.columns * grid.rows) * layout.image_stride +
                     top * layout.row_stride + left * layout.pixel_stride;
    loop(range.row + tile - range.first, first,
         Inside{.top = std::max<std::ptrdiff_t>(-top, 0),
                .bottom = std::min<std::ptrdiff_t>(layout.height - top, size),
                .left = std::max<std::ptrdiff_t>(-left, 0),
                .right = std::min<std::ptrdiff_t>(layout.width - left, size)});
  }
}

template <int size>
LOCKSTEP_INLINED inline bool is_whole(const Inside& inside) {
  return inside.top == 0 && inside.left == 0 && inside.bottom == size && inside.right == size;
}

/// Loads a window; pixels outside are zero.
template <int width, int size, bool whole, typename Pixel>
LOCKSTEP_INLINED inline auto load_window(const PixelLayout& layout, const Pixel* from,
                                         const Inside& inside) {
  using V = typename VectorTypes<width>::Float;
  Tile<V, size> window;
  for (int i = 0; i < size; ++i) {
    if (whole || (i >= inside.top && i < inside.bottom)) {
      const Pixel* const row = from + i * layout.row_stride;
      for (int j = 0; j < size; ++j) {
        window[i][j] = whole || (j >= inside.left && j < inside.right)
                           ? load_floats<width>(row + j * layout.pixel_stride)
                           : V{};
      }
    } else {
      for (int j = 0; j < size; ++j) window[i][j] = V{};
    }
  }
  return window;
}

template <typename V, int points>
LOCKSTEP_INLINED inline void store_points(const Tile<V, points>& tile, float* to,
                                          std::ptrdiff_t stride) {
  for (int i = 0; i < points; ++i) {
    for (int j = 0; j < points; ++j) store_bytes(tile[i][j], to + (i * points + j) * stride);
  }
}

template <typename V, int points>
LOCKSTEP_INLINED inline Tile<V, points> load_points(const float* from, std::ptrdiff_t stride) {
  Tile<V, points> tile;
  for (int i = 0; i < points; ++i) {
    for (int j = 0; j < points; ++j) tile[i][j] = load_bytes<V>(from + (i * points + j) * stride);
  }
  return tile;
}

/// Applies a transform along both axes.
template <typename V, int size, typename Transform>
LOCKSTEP_INLINED inline auto along_both(const Tile<V, size>& from, const Transform& transform) {
  const auto half = along_columns<V, size, size>(from, transform);
  constexpr auto rows = std::tuple_size_v<decltype(half)>;
  Tile<V, rows, rows> to;
  for (std::size_t i = 0; i < rows; ++i) to[i] = transform(half[i]);
  return to;
}

/// Calls loop(offset, channel) for the processor's vectors, of `width` channels, of a pixel or a
/// row: the offset in the layout, and the channel in the matrices.
template <int width, typename Layout, typename Loop>
LOCKSTEP_INLINED inline void for_vectors(const Layout& layout, const Loop& loop) {
  for (std::int64_t v = 0; v < layout.vectors; ++v) {
    for (int lane = 0; lane < layout.lanes; lane += width) {
      loop(v * layout.vector_stride + lane, v * layout.lanes + lane);
    }
  }
}

/// Transforms windows of `size` x `size` pixels to points.
template <int outputs, int width, int size, typename Pixel, typename Transform>
LOCKSTEP_INLINED inline void windows_to_points(const PixelLayout& layout, const Pixel* image,
                                               const TileGrid& grid, const TileRange& range,
                                               std::int64_t padding, const PointMatrices& to,
                                               const Transform& transform) {
  using V = typename VectorTypes<width>::Float;
  constexpr int points = outputs + 2;
  for_tiles(layout, image, grid, range, size, padding,
            [&](std::int64_t row, const Pixel* first, const Inside& inside) LOCKSTEP_INLINED {
              float* const at = to.values + row * to.channels;
              const auto all = [&](auto whole) LOCKSTEP_INLINED {
                for_vectors<width>(
                    layout, [&](std::ptrdiff_t offset, std::ptrdiff_t channel) LOCKSTEP_INLINED {
                      const auto window =
                          load_window<width, size, whole>(layout, first + offset, inside);
                      store_points<V, points>(along_both<V, size>(window, transform), at + channel,
                                              to.stride);
                    });
              };
              if (is_whole<size>(inside)) {
                all(std::true_type());
              } else {
                all(std::false_type());
              }
            });
}

template <int outputs, int width, typename Pixel>
LOCKSTEP_INLINED inline void result_of_points(const PixelLayout& layout, const PointMatrices& from,
                                              const TileGrid& grid, const TileRange& range,
                                              const float* bias, Pixel* result) {
  using V = typename VectorTypes<width>::Float;
  constexpr int points = outputs + 2;
  const auto transform = [](const std::array<V, points>& m)
                             LOCKSTEP_INLINED { return WinogradTransforms<outputs>::to_result(m); };
  for_tiles(layout, result, grid, range, outputs, 0,
            [&](std::int64_t row, Pixel* first, const Inside& inside) LOCKSTEP_INLINED {
              const float* const at = from.values + row * from.channels;
              for_vectors<width>(
                  layout, [&](std::ptrdiff_t offset, std::ptrdiff_t channel) LOCKSTEP_INLINED {
                    auto tile = along_both<V, points>(
                        load_points<V, points>(at + channel, from.stride), transform);
                    if (bias != nullptr) {
                      const V addend = load_bytes<V>(bias + channel);
                      for (auto& line : tile) {
                        for (V& pixel : line) pixel += addend;
                      }
                    }
                    for (int i = 0; i < outputs; ++i) {
                      for (int j = 0; j < outputs; ++j) {
                        if (i < inside.bottom && j < inside.right) {
                          store_floats<width>(tile[i][j], first + offset + i * layout.row_stride +
                                                              j * layout.pixel_stride);
                        }
                      }
                    }
                  });
            });
}

template <int outputs, int width, typename Pixel>
LOCKSTEP_INLINED inline void sums_of_tiles(const PixelLayout& layout, const Pixel* image,
                                           const TileGrid& grid, const TileRange& range,
                                           float* sums) {
  using V = typename VectorTypes<width>::Float;
  for_tiles(layout, image, grid, range, outputs, 0,
            [&](std::int64_t /*row*/, const Pixel* first, const Inside& inside) LOCKSTEP_INLINED {
              for_vectors<width>(
                  layout, [&](std::ptrdiff_t offset, std::ptrdiff_t channel) LOCKSTEP_INLINED {
                    V sum{};
                    for (const auto& line :
                         load_window<width, outputs, false>(layout, first + offset, inside)) {
                      for (const V& pixel : line) sum += pixel;
                    }
                    store_bytes(load_bytes<V>(sums + channel) + sum, sums + channel);
                  });
            });
}

/// Offset of a row's first vector at the first position of the filter.
std::ptrdiff_t row_offset(const FilterLayout& layout, std::int64_t row) {
  return row / layout.lanes * layout.block_stride + row % layout.lanes * layout.lanes;
}

template <int outputs, int width>
LOCKSTEP_INLINED inline void points_of_filter(const FilterToPoints& of, const float* filter,
                                              const RowRange& range, const PointMatrices& to) {
  using V = typename VectorTypes<width>::Float;
  constexpr int points = outputs + 2;
  const auto transform = [](const std::array<V, 3>& g)
                             LOCKSTEP_INLINED { return WinogradTransforms<outputs>::of_filter(g); };
  const FilterLayout& layout = of.layout;
  // A rotated filter is read from its last position backwards.
  const std::ptrdiff_t sign = of.rotated ? -1 : 1;
  const std::ptrdiff_t begin =
      of.rotated ? 2 * (layout.height_stride + layout.width_stride) : std::ptrdiff_t{0};
  for (std::int64_t row = range.first; row < range.last; ++row) {
    const float* const first = filter + row_offset(layout, row) + begin;
    float* const target = to.values + row * to.channels;
    for_vectors<width>(layout, [&](std::ptrdiff_t offset, std::ptrdiff_t channel) LOCKSTEP_INLINED {
      Tile<V, 3> tile;
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) {
          tile[i][j] = load_bytes<V>(first + offset +
                                     sign * (i * layout.height_stride + j * layout.width_stride));
        }
      }
      store_points<V, points>(along_both<V, 3>(tile, transform), target + channel, to.stride);
    });
  }
}

template <int outputs, int width>
LOCKSTEP_INLINED inline void filter_of_points(const PointsToFilter& of, const PointMatrices& from,
                                              const RowRange& range, float* filter) {
  using V = typename VectorTypes<width>::Float;
  constexpr int points = outputs + 2;
  const auto transform = [](const std::array<V, points>& m)
                             LOCKSTEP_INLINED { return WinogradTransforms<outputs>::to_filter(m); };
  const FilterLayout& layout = of.layout;
  for (std::int64_t row = range.first; row < range.last; ++row) {
    float* const target = filter + row_offset(layout, row);
    for_vectors<width>(layout, [&](std::ptrdiff_t offset, std::ptrdiff_t channel) LOCKSTEP_INLINED {
      const float* at = from.values + row * from.channels + channel;
      auto sums = load_points<V, points>(at, from.stride);
      for (int copy = 1; copy < of.copies; ++copy) {
        at += of.copy_stride;
        const auto more = load_points<V, points>(at, from.stride);
        for (int i = 0; i < points; ++i) {
          for (int j = 0; j < points; ++j) sums[i][j] += more[i][j];
        }
      }
      const auto tile = along_both<V, points>(sums, transform);
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) {
          store_bytes(tile[i][j],
                      target + offset + i * layout.height_stride + j * layout.width_stride);
        }
      }
    });
  }
}

using vector_loops::Constant;

/// Calls pass(outputs, width) with constants, for the processor's widest vectors.
template <typename Pass>
void with_constants(int outputs, int lanes, const Pass& pass) {
  vector_loops::run_with_width(lanes, [&](auto width) LOCKSTEP_INLINED {
    if (outputs == 4) {
      pass(Constant<4>(), width);
    } else {
      pass(Constant<2>(), width);
    }
  });
}
/// Calls pass(outputs, width, image), the image with the layout's type.
template <typename Image, typename Pass>
void with_pixels(int outputs, const PixelLayout& layout, Image* image, const Pass& pass) {
  const auto typed = [&](auto* pixels) {
    with_constants(outputs, layout.lanes,
                   [&](auto tile, auto width) LOCKSTEP_INLINED { pass(tile, width, pixels); });
  };
  if (layout.bf16) {
    typed(static_cast<SameConst<Image, Bfloat16>*>(image));
  } else {
    typed(static_cast<SameConst<Image, float>*>(image));
  }
}

}  // namespace

void source_to_points(const PixelLayout& layout, const void* source, const TileGrid& grid,
                      const TileRange& range, const PointMatrices& to) {
  with_pixels(grid.outputs, layout, source,
              [&]<int outputs, int width>(Constant<outputs>, Constant<width>, const auto* pixels)
                  LOCKSTEP_INLINED {
                    windows_to_points<outputs, width, outputs + 2>(
                        layout, pixels, grid, range, grid.padding, to,
                        [](const auto& d)
                            LOCKSTEP_INLINED { return WinogradTransforms<outputs>::of_source(d); });
                  });
}

void gradient_to_points(const PixelLayout& layout, const void* gradient, const TileGrid& grid,
                        const TileRange& range, const PointMatrices& to) {
  with_pixels(grid.outputs, layout, gradient,
              [&]<int outputs, int width>(Constant<outputs>, Constant<width>, const auto* pixels)
                  LOCKSTEP_INLINED {
                    windows_to_points<outputs, width, outputs>(
                        layout, pixels, grid, range, 0, to, [](const auto& d) LOCKSTEP_INLINED {
                          return WinogradTransforms<outputs>::of_gradient(d);
                        });
                  });
}

void points_to_result(const PixelLayout& layout, const PointMatrices& from, const TileGrid& grid,
                      const TileRange& range, const float* bias, void* result) {
  with_pixels(grid.outputs, layout, result,
              [&]<int outputs, int width>(Constant<outputs>, Constant<width>, auto* pixels)
                  LOCKSTEP_INLINED {
                    result_of_points<outputs, width>(layout, from, grid, range, bias, pixels);
                  });
}

void add_tiles(const PixelLayout& layout, const void* image, const TileGrid& grid,
               const TileRange& range, float* sums) {
  with_pixels(
      grid.outputs, layout, image,
      [&]<int outputs, int width>(Constant<outputs>, Constant<width>, const auto* pixels)
          LOCKSTEP_INLINED { sums_of_tiles<outputs, width>(layout, pixels, grid, range, sums); });
}

void filter_to_points(const FilterToPoints& of, const float* filter, const RowRange& range,
                      const PointMatrices& to) {
  with_constants(of.outputs, of.layout.lanes,
                 [&]<int outputs, int width>(Constant<outputs>, Constant<width>)
                     LOCKSTEP_INLINED { points_of_filter<outputs, width>(of, filter, range, to); });
}

void points_to_filter(const PointsToFilter& of, const PointMatrices& from, const RowRange& range,
                      float* filter) {
  with_constants(of.outputs, of.layout.lanes,
                 [&]<int outputs, int width>(Constant<outputs>, Constant<width>) LOCKSTEP_INLINED {
                   filter_of_points<outputs, width>(of, from, range, filter);
                 });
}

}  // namespace lockstep::cpu
