#include "column_gather.hpp"
#include "kernels.hpp"
#include "launch.hpp"
#include "vector_io.hpp"

namespace lockstep::gpu {
namespace {

constexpr int channels = static_cast<int>(ColumnGather::channels);

/// One item per 16 bytes of a gathered pixel: one column in fp32, two in 16 bits.
template <typename T>
struct GatherColumns {
  static constexpr int columns_each = packed_size<T> / channels;
  ColumnGather gather;
  const T* images;
  T* gathered;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division pixel = divide(item, 2 * gather.columns() / columns_each);
    const Division half = divide(pixel.rest * columns_each, gather.columns());
    const Division row = divide(pixel.quotient, gather.gathered_width);
    const Division image = divide(row.quotient, gather.gathered_height);
    const std::int64_t h = 2 * image.rest + half.quotient - gather.border;
    const std::int64_t w = 2 * row.rest + half.rest - gather.border;
    Packed128 loaded[columns_each];
    for (int i = 0; i < columns_each; ++i) {
      loaded[i] =
          is_within(h, w + i)
              ? load128(images + ((image.quotient * gather.height + h) * gather.width + w + i) *
                                     gather.padded)
              : Packed128{};
    }
    Packed128 result = loaded[0];
    if constexpr (columns_each == 2) {
      result = {{loaded[0].words[0], loaded[0].words[1], loaded[1].words[0], loaded[1].words[1]}};
    }
    store128(gathered + item * packed_size<T>, result);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool is_within(std::int64_t h, std::int64_t w) const {
    return h >= 0 && w >= 0 && h < gather.height && w < gather.width;
  }
};

/// Place of a gathered filter's value.
struct FilterPlace {
  std::int64_t filter;
  std::int64_t row;  ///< of the kernel; may lie outside
  std::int64_t column;
  std::int64_t channel;
};
LOCKSTEP_HOST_DEVICE FilterPlace place_in_filter(const ColumnGather& gather, std::int64_t at) {
  const Division column = divide(at, channels);
  const Division row = divide(column.quotient, gather.columns());
  const Division filter = divide(row.quotient, 2 * gather.pairs);
  return {.filter = filter.quotient,
          .row = filter.rest - gather.kernel_begin,
          .column = row.rest - gather.kernel_begin,
          .channel = column.rest};
}

/// One item per value of the gathered filters.
template <typename T>
struct GatherFilters {
  ColumnGather gather;
  const T* filters;
  T* gathered;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const FilterPlace place = place_in_filter(gather, item);
    const bool is_there = place.row >= 0 && place.column >= 0 && place.row < gather.kernel &&
                          place.column < gather.kernel;
    gathered[item] =
        is_there
            ? filters[((place.filter * gather.kernel + place.row) * gather.kernel + place.column) *
                          gather.padded +
                      place.channel]
            : from_float<T>(0.0F);
  }
};

/// One item per value of the filters.
template <typename T>
struct ScatterFilters {
  ColumnGather gather;
  const T* gathered;
  float* gradient;
  bool adds;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division column = divide(item, gather.padded);
    const Division row = divide(column.quotient, gather.kernel);
    const Division filter = divide(row.quotient, gather.kernel);
    float value = 0;
    if (column.rest < channels) {
      const std::int64_t row_at =
          filter.quotient * 2 * gather.pairs + filter.rest + gather.kernel_begin;
      const std::int64_t at = row_at * gather.columns() + row.rest + gather.kernel_begin;
      value = to_float(gathered[at * channels + column.rest]);
    }
    gradient[item] = adds ? gradient[item] + value : value;
  }
};

}  // namespace

void gather_columns(Stream stream, DataType type, const ColumnGather& gather, const void* images,
                    void* gathered) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, gather.gathered_values() / packed_size<T>,
           GatherColumns<T>{gather, static_cast<const T*>(images), static_cast<T*>(gathered)});
  });
}

void gather_filters(Stream stream, DataType type, const ColumnGather& gather, const void* filters,
                    void* gathered) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, gather.gathered_filter_values(),
           GatherFilters<T>{gather, static_cast<const T*>(filters), static_cast<T*>(gathered)});
  });
}

void scatter_filters(Stream stream, DataType type, const ColumnGather& gather, const void* gathered,
                     float* gradient, bool adds) {
  with_type(type, [&]<typename T>(T*) {
    launch(stream, gather.filter_values(),
           ScatterFilters<T>{gather, static_cast<const T*>(gathered), gradient, adds});
  });
}

}  // namespace lockstep::gpu
