#include "inverse_deviation.hpp"
#include "kernels.hpp"
#include "row_reduction.hpp"

namespace lockstep::gpu {
namespace {

/// Mean of each chunk's values and sum of their squared distances from it, (chunks, padded) each,
/// computed from distances to the mean of the chunk's first two values. The further
/// that is from the chunk's mean, the more digits cancel; a single value may be far from it.
template <typename T>
struct ChunkStatistics {
  using Partial = Vec8Sums<2>;
  RowReduction reduction;
  const T* x;
  float* partials;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE RawVec8<T> read(std::int64_t row, std::int64_t channel) const {
    return read_vec8(x + row * reduction.padded + channel);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Vec8 shift_of(std::int64_t block, std::int64_t channel) const {
    const std::int64_t first = reduction.chunk_of(block) * reduction.lanes();
    const std::int64_t second = first + 1 < reduction.rows ? first + 1 : first;
    Vec8 shift = read(first, channel).floats();
    const Vec8 other = read(second, channel).floats();
    for (int i = 0; i < vec8_size; ++i) shift[i] = 0.5F * shift[i] + 0.5F * other[i];
    return shift;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int block_column,
                                                     int lane) const {
    const std::int64_t channel = reduction.channel_of(block, block_column);
    Partial result;
    result.clear();
    if (channel >= reduction.padded) return result;
    const Vec8 shift = shift_of(block, channel);
    reduction.for_rows_of<packed_size<T> / 2>(
        block, lane, [&](std::int64_t row) { return read(row, channel); },
        [&](std::int64_t, const RawVec8<T>& raw) {
          const Vec8 values = raw.floats();
          for (int i = 0; i < vec8_size; ++i) {
            const float distance = values[i] - shift[i];
            result.sums[0][i] += distance;
            result.sums[1][i] += distance * distance;
          }
        });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int block_column,
                                   const Partial& sums) const {
    const std::int64_t channel = reduction.channel_of(block, block_column);
    if (channel >= reduction.padded) return;
    const Vec8 shift = shift_of(block, channel);
    const auto count = static_cast<float>(reduction.rows_of(reduction.chunk_of(block)));
    Partial terms;  // the mean, and the squares of distances to it
    for (int i = 0; i < vec8_size; ++i) {
      const float distance = sums.sums[0][i] / count;
      terms.sums[0][i] = shift[i] + distance;
      terms.sums[1][i] = sums.sums[1][i] - distance * sums.sums[0][i];
    }
    store_partials(reduction, block, channel, terms, partials);
  }
};

/// Mean and variance of all chunks, from distances to the first chunk's mean. After T. F. Chan, G.
/// H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
/// variances", 1979.
template <bool over_ranks>
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
  NormStatistics out;
  double* sums_for_ranks;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int column,
                                                     int lane) const {
    const std::int64_t padded = reduction.padded;
    const std::int64_t channel = block * channels_per_block + column;
    Partial result{0, 0};
    if (channel >= padded) return result;
    const double first = static_cast<double>(partials[channel]);
    for_rows<8>(
        lane, combining_lanes, rows_below(reduction.chunks, lane, combining_lanes),
        [&](std::int64_t chunk) {
          const float* const from = partials + chunk * padded + channel;
          return Floats<2>{{from[0], from[reduction.partials()]}};
        },
        [&](std::int64_t chunk, const Floats<2>& loaded) {
          const auto count = static_cast<double>(reduction.rows_of(chunk));
          const double distance = static_cast<double>(loaded[0]) - first;
          result.distances += count * distance;
          result.squares += static_cast<double>(loaded[1]) + count * distance * distance;
        });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int column, const Partial& sums) const {
    const std::int64_t channel = block * channels_per_block + column;
    if (channel >= reduction.padded) return;
    const auto count = static_cast<double>(reduction.rows);
    const double distance = sums.distances / count;
    const double squares = sums.squares / count - distance * distance;
    const float variance = squares < 0 ? 0.0F : static_cast<float>(squares);  // keeps NaN
    const auto mean = static_cast<float>(static_cast<double>(partials[channel]) + distance);
    if constexpr (over_ranks) {
      const auto m = static_cast<double>(mean);
      sums_for_ranks[channel] = count * m;
      sums_for_ranks[reduction.padded + channel] = count * (m * m + static_cast<double>(variance));
      if (channel == 0) sums_for_ranks[2 * reduction.padded] = count;
    } else {
      out.mean[channel] = mean;
      out.variance[channel] = variance;
      out.inverse_deviation[channel] = inverse_deviation(variance, out.eps);
    }
  }
};

/// Both kernels; writes one of the two results.
template <bool over_ranks>
void reduce_statistics(Stream stream, DataType type, const Matrix& extent, const void* x,
                       const NormStatistics& out, double* sums, void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  auto* const partials = static_cast<float*>(workspace);
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(stream, reduction.blocks(),
                  ChunkStatistics<T>{reduction, static_cast<const T*>(x), partials});
  });
  launch_blocks(stream, combining_blocks(reduction),
                CombineStatistics<over_ranks>{reduction, partials, out, sums});
}

}  // namespace

void batch_norm_statistics(Stream stream, DataType type, const Matrix& extent, const void* x,
                           const NormStatistics& out, void* workspace) {
  reduce_statistics<false>(stream, type, extent, x, out, nullptr, workspace);
}

void batch_norm_sums(Stream stream, DataType type, const Matrix& extent, const void* x,
                     double* sums, void* workspace) {
  reduce_statistics<true>(stream, type, extent, x, {}, sums, workspace);
}

}  // namespace lockstep::gpu
