#include "inverse_deviation.hpp"
#include "kernels.hpp"
#include "row_reduction.hpp"

namespace lockstep::gpu {
namespace {

/// Mean of each chunk's values and sum of their squared distances from it, (chunks, width) each,
/// computed from distances to the chunk's first value.
template <typename T>
struct ChunkStatistics {
  using Partial = Vec8Sums<2>;
  RowReduction reduction;
  const T* x;
  float* partials;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE RawVec8<T> read(const Vec8Column& column,
                                                     std::int64_t row) const {
    return read_vec8(x + row * reduction.extent.width + column.at, row < column.whole_rows);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Vec8 first_value(const Vec8Column& column,
                                                      std::int64_t block) const {
    const std::int64_t row = reduction.chunk_of(block) * reduction.lanes();
    return row < column.rows ? read(column, row).floats() : filled<vec8_size>(0);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int block_column,
                                                     int lane) const {
    const Vec8Column column = reduction.column_of(block, block_column);
    const Vec8 shift = first_value(column, block);
    Partial result;
    result.clear();
    reduction.for_rows_of<packed_size<T> / 2>(
        block, lane, column.rows, [&](std::int64_t row) { return read(column, row); },
        [&](std::int64_t row, const RawVec8<T>& raw) {
          const Vec8 values = raw.floats();
          for (int i = 0; i < vec8_size; ++i) {
            const bool is_there = packed_size<T> == vec8_size || i < 4 || row < column.whole_rows;
            const float distance = is_there ? values[i] - shift[i] : 0.0F;
            result.sums[0][i] += distance;
            result.sums[1][i] += distance * distance;
          }
        });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int block_column,
                                   const Partial& sums) const {
    const Vec8Column column = reduction.column_of(block, block_column);
    const Vec8 shift = first_value(column, block);
    Partial terms;  // the mean, and the squares of distances to it
    for (int i = 0; i < vec8_size; ++i) {
      const auto count = static_cast<float>(
          reduction.rows_of(reduction.chunk_of(block), column.at + (i < 4 ? 0 : 4)));
      const float distance = count > 0 ? sums.sums[0][i] / count : 0.0F;
      terms.sums[0][i] = shift[i] + distance;
      terms.sums[1][i] = sums.sums[1][i] - distance * sums.sums[0][i];
    }
    store_partials(reduction, block, column.at, terms, partials);
  }
};

/// Mean and variance of all chunks, from distances to the first chunk's mean. After T. F. Chan, G.
/// H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
/// variances", 1979.
struct CombineStatistics {
  static constexpr bool few_blocks = true;  // few threads, with many loads
  struct Partial {
    double distances;
    double squares;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      distances += other.distances;
      squares += other.squares;
    }
  };
  RowReduction reduction;
  const float* partials;
  std::int64_t rows;  ///< of the matrix
  NormStatistics out;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int column,
                                                     int lane) const {
    const std::int64_t padded = reduction.extent.padded;
    const std::int64_t channel = block * channels_per_block + column;
    Partial result{0, 0};
    if (channel >= padded) return result;
    const double first = static_cast<double>(partials[channel]);
    for (std::int64_t at = channel; at < reduction.extent.width; at += padded) {
      const std::int64_t rows_here = reduction.extent.rows_with(at);
      const auto whole_rounds =
          static_cast<double>(rows_here / reduction.stride() * reduction.lanes());
      const std::int64_t rest = rows_here % reduction.stride();
      for_rows<8>(
          lane, combining_lanes, rows_below(reduction.chunks, lane, combining_lanes),
          [&](std::int64_t chunk) {
            const float* const from = partials + chunk * reduction.extent.width + at;
            return Floats<2>{{from[0], from[reduction.partials()]}};
          },
          [&](std::int64_t chunk, const Floats<2>& loaded) {
            const std::int64_t more = rest - chunk * reduction.lanes();
            const std::int64_t lanes = reduction.lanes();
            const double count = whole_rounds + static_cast<double>(more < 0       ? 0
                                                                    : more < lanes ? more
                                                                                   : lanes);
            const double distance = static_cast<double>(loaded[0]) - first;
            result.distances += count * distance;
            result.squares += static_cast<double>(loaded[1]) + count * distance * distance;
          });
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int column, const Partial& sums) const {
    const std::int64_t channel = block * channels_per_block + column;
    if (channel >= reduction.extent.padded) return;
    const auto count = static_cast<double>(rows);
    const double distance = sums.distances / count;
    const double squares = sums.squares / count - distance * distance;
    const float variance = squares < 0 ? 0.0F : static_cast<float>(squares);  // keeps NaN
    out.mean[channel] = static_cast<float>(static_cast<double>(partials[channel]) + distance);
    out.variance[channel] = variance;
    out.inverse_deviation[channel] = inverse_deviation(variance, out.eps);
  }
};

}  // namespace

void batch_norm_statistics(Stream stream, DataType type, const Matrix& extent, const void* x,
                           const NormStatistics& out, void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  auto* const partials = static_cast<float*>(workspace);
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(stream, reduction.blocks(),
                  ChunkStatistics<T>{reduction, static_cast<const T*>(x), partials});
  });
  launch_blocks(stream, combining_blocks(reduction),
                CombineStatistics{reduction, partials, extent.rows, out});
}

}  // namespace lockstep::gpu
