#include "inverse_deviation.hpp"
#include "kernels.hpp"
#include "row_reduction.hpp"

#include <algorithm>

namespace lockstep::gpu {
namespace {

/// Deviations of `count` values from their mean, merged as in T. F. Chan et al., "Updating formulae
/// and a pairwise algorithm for computing sample variances", 1979.
struct Moments {
  float count = 0;
  float mean = 0;
  float squares = 0;  ///< sum of squared deviations
  LOCKSTEP_HOST_DEVICE void merge(const Moments& other) {
    if (other.count == 0) return;
    const float sum = count + other.count;
    const float share = other.count / sum;
    const float distance = other.mean - mean;
    mean += distance * share;
    squares += other.squares + distance * distance * count * share;
    count = sum;
  }
};

/// The lanes of a row divide its vec8 columns.
struct Lanes {
  std::int64_t channels = 0;
  std::int64_t padded = 0;
  int count = 1;
  /// Calls use(first channel, place of its value, how many of the eight are no padding).
  template <typename Use>
  LOCKSTEP_HOST_DEVICE void for_columns(std::int64_t row, int lane, const Use& use) const {
    for (std::int64_t c = std::int64_t{lane} * vec8_size; c < padded; c += count * vec8_size) {
      const std::int64_t rest = channels - c;
      use(c, row * padded + c,
          rest < 0           ? 0
          : rest < vec8_size ? static_cast<int>(rest)
                             : vec8_size);
    }
  }
};
Lanes lanes_of(const Matrix& extent) {
  Lanes lanes{.channels = extent.channels, .padded = extent.padded, .count = 1};
  const std::int64_t columns = extent.padded / vec8_size;
  while (lanes.count < 32 && 2 * lanes.count <= columns) lanes.count *= 2;
  return lanes;
}

template <typename T>
struct Forward {
  using Partial = Moments;
  Lanes lanes;
  LayerNormalization norm;
  const T* x;
  RowStatistics statistics;
  T* y;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Moments partial(std::int64_t row, int lane) const {
    Moments result;
    lanes.for_columns(row, lane, [&](std::int64_t, std::int64_t at, int there) {
      if (there == 0) return;
      const Vec8 values = load<vec8_size>(x + at);
      Moments own;
      own.count = static_cast<float>(there);
      for (int i = 0; i < there; ++i) own.mean += values[i];
      own.mean /= own.count;
      for (int i = 0; i < there; ++i) {
        own.squares += (values[i] - own.mean) * (values[i] - own.mean);
      }
      result.merge(own);
    });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t row, int lane, const Moments& total) const {
    const float factor = inverse_deviation(total.squares / total.count, norm.eps);
    if (lane == 0 && statistics.means != nullptr) {
      statistics.means[row] = total.mean;
      statistics.inverse_deviations[row] = factor;
    }
    lanes.for_columns(row, lane, [&](std::int64_t channel, std::int64_t at, int there) {
      Vec8 values = load<vec8_size>(x + at);
      const Vec8 weight = load<vec8_size>(norm.weight + channel);
      const Vec8 bias = load<vec8_size>(norm.bias + channel);
      for (int i = 0; i < vec8_size; ++i) {
        values[i] = i < there ? (values[i] - total.mean) * factor * weight[i] + bias[i] : 0.0F;
      }
      store<vec8_size>(y + at, values);
    });
  }
};

/// With g = weight * dy and n the normalized x: dx = (g - mean(g) - n * mean(g * n)) / deviation.
template <typename T>
struct Backward {
  struct Partial {
    float g = 0;
    float product = 0;  ///< of g and n
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) {
      g += other.g;
      product += other.product;
    }
  };
  Lanes lanes;
  const float* weight;
  const T* x;
  const T* dy;
  RowStatistics statistics;
  T* dx;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t row, int lane) const {
    const float mean = statistics.means[row];
    const float factor = statistics.inverse_deviations[row];
    Partial result;
    lanes.for_columns(row, lane, [&](std::int64_t channel, std::int64_t at, int there) {
      const Vec8 values = load<vec8_size>(x + at);
      const Vec8 gradient = load<vec8_size>(dy + at);
      const Vec8 scale = load<vec8_size>(weight + channel);
      for (int i = 0; i < there; ++i) {
        const float g = gradient[i] * scale[i];
        result.g += g;
        result.product += g * ((values[i] - mean) * factor);
      }
    });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t row, int lane, const Partial& total) const {
    const float mean = statistics.means[row];
    const float factor = statistics.inverse_deviations[row];
    const float share = 1.0F / static_cast<float>(lanes.channels);
    const float of_g = total.g * share;
    const float of_product = total.product * share;
    lanes.for_columns(row, lane, [&](std::int64_t channel, std::int64_t at, int there) {
      const Vec8 values = load<vec8_size>(x + at);
      Vec8 gradient = load<vec8_size>(dy + at);
      const Vec8 scale = load<vec8_size>(weight + channel);
      for (int i = 0; i < vec8_size; ++i) {
        const float g = gradient[i] * scale[i];
        const float n = (values[i] - mean) * factor;
        gradient[i] = i < there ? (g - of_g - n * of_product) * factor : 0.0F;
      }
      store<vec8_size>(dx + at, gradient);
    });
  }
};

/// Sums over rows of dy and of dy * n.
template <typename T>
struct ChunkGradients {
  using Partial = Vec8Sums<2>;
  RowReduction reduction;
  const T* x;
  const T* dy;
  RowStatistics statistics;
  float* partials;

  struct Loaded {
    RawVec8<T> x;
    RawVec8<T> dy;
    float mean;
    float factor;
  };
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int block_column,
                                                     int lane) const {
    const std::int64_t channel = reduction.channel_of(block, block_column);
    Partial result;
    result.clear();
    if (channel >= reduction.padded) return result;
    reduction.for_rows_of<packed_size<T> / 4>(
        block, lane,
        [&](std::int64_t row) {
          const std::int64_t at = row * reduction.padded + channel;
          return Loaded{read_vec8(x + at), read_vec8(dy + at), statistics.means[row],
                        statistics.inverse_deviations[row]};
        },
        [&](std::int64_t, const Loaded& loaded) {
          const Vec8 values = loaded.x.floats();
          const Vec8 gradient = loaded.dy.floats();
          for (int i = 0; i < vec8_size; ++i) {
            result.sums[0][i] += gradient[i];
            result.sums[1][i] += gradient[i] * ((values[i] - loaded.mean) * loaded.factor);
          }
        });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int block_column,
                                   const Partial& sums) const {
    store_partials(reduction, block, reduction.channel_of(block, block_column), sums, partials);
  }
};

struct CombineGradients {
  using Sums = PartialSums<2>;
  using Partial = Sums::Partial;
  Sums sums;
  KeptGradients out;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int column,
                                                     int lane) const {
    return sums.partial(block * channels_per_block + column, lane);
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int column, const Partial& total) const {
    const std::int64_t channel = block * channels_per_block + column;
    if (channel >= sums.padded) return;
    write(out.bias, channel, total.sums[0]);
    write(out.weight, channel, total.sums[1]);
  }
  LOCKSTEP_HOST_DEVICE void write(float* to, std::int64_t channel, double sum) const {
    if (to == nullptr) return;
    const auto value = static_cast<float>(sum);
    to[channel] = out.adds ? to[channel] + value : value;
  }
};

}  // namespace

void layer_norm_forward(Stream stream, DataType type, const Matrix& extent, const void* x,
                        const LayerNormalization& norm, const RowStatistics& statistics, void* y) {
  const Lanes lanes = lanes_of(extent);
  with_type(type, [&]<typename T>(T*) {
    launch_rows(stream, extent.rows, lanes.count,
                Forward<T>{lanes, norm, static_cast<const T*>(x), statistics, static_cast<T*>(y)});
  });
}

void layer_norm_backward(Stream stream, DataType type, const Matrix& extent, const void* x,
                         const void* dy, const float* weight, const RowStatistics& statistics,
                         void* dx) {
  const Lanes lanes = lanes_of(extent);
  with_type(type, [&]<typename T>(T*) {
    launch_rows(stream, extent.rows, lanes.count,
                Backward<T>{lanes, weight, static_cast<const T*>(x), static_cast<const T*>(dy),
                            statistics, static_cast<T*>(dx)});
  });
}

void layer_norm_parameter_gradients(Stream stream, DataType type, const Matrix& extent,
                                    const void* x, const void* dy, const RowStatistics& statistics,
                                    const KeptGradients& out, void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  auto* const partials = static_cast<float*>(workspace);
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(stream, reduction.blocks(),
                  ChunkGradients<T>{reduction, static_cast<const T*>(x), static_cast<const T*>(dy),
                                    statistics, partials});
  });
  launch_blocks(stream, combining_blocks(reduction),
                CombineGradients{{partials, reduction.chunks, reduction.padded}, out});
}

}  // namespace lockstep::gpu
