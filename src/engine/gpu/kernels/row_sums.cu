#include "kernels.hpp"
#include "norm_gradients.hpp"
#include "row_reduction.hpp"
#include "sample_drop.hpp"

namespace lockstep::gpu {
namespace {

template <typename T>
struct ChunkSums {
  using Partial = Vec8Sums<1>;
  RowReduction reduction;
  const T* x;
  float* partials;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int block_column,
                                                     int lane) const {
    const std::int64_t channel = reduction.channel_of(block, block_column);
    Partial result;
    result.clear();
    if (channel >= reduction.padded) return result;
    reduction.for_rows_of<packed_size<T> / 2>(
        block, lane,
        [&](std::int64_t row) { return read_vec8(x + row * reduction.padded + channel); },
        [&](std::int64_t, const RawVec8<T>& raw) {
          const Vec8 values = raw.floats();
          for (int i = 0; i < vec8_size; ++i) result.sums[0][i] += values[i];
        });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int block_column,
                                   const Partial& sums) const {
    store_partials(reduction, block, reduction.channel_of(block, block_column), sums, partials);
  }
};

struct CombineSums {
  using Sums = PartialSums<1>;
  using Partial = Sums::Partial;
  Sums sums;
  float* out;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int column,
                                                     int lane) const {
    return sums.partial(block * channels_per_block + column, lane);
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int column, const Partial& total) const {
    const std::int64_t channel = block * channels_per_block + column;
    if (channel < sums.padded) out[channel] = static_cast<float>(total.sums[0]);
  }
};

/// Number of sums: of g and of g * (x - mean), for one norm or, with an added norm, for both. Their
/// sums of g differ if samples are dropped; else the first is used for both.
constexpr int gradient_sums(bool added) {
  return added ? 4 : 2;
}

/// `joins`: g is the sum of two gradients, computed and stored here.
template <typename T, bool masked, bool joins, bool added>
struct ChunkGradients {
  static constexpr int kinds = gradient_sums(added);
  using Partial = Vec8Sums<kinds>;
  RowReduction reduction;
  const T* dy;
  const T* other;
  T* kept;
  const std::uint8_t* mask;
  const T* x;
  const float* mean;
  const T* added_x;
  const float* added_mean;
  SampleDrop drop;  ///< of the added norm if there is one
  float* partials;

  struct Loaded {
    RawVec8<T> x;
    RawVec8<T> dy;
    std::uint32_t bits;
    RawVec8<T> other;
    RawVec8<T> added_x;
  };
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int block_column,
                                                     int lane) const {
    const std::int64_t channel = reduction.channel_of(block, block_column);
    Partial result;
    result.clear();
    if (channel >= reduction.padded) return result;
    const Vec8 center = load<vec8_size>(mean + channel);
    Vec8 added_center{};
    if constexpr (added) added_center = load<vec8_size>(added_mean + channel);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    // A row takes more registers there, so two would not fit.
    constexpr int depth = joins ? 1 : packed_size<T> / 4;
#else
    constexpr int depth = packed_size<T> / 4;
#endif
    const auto sum_rows = [&]<bool drops>() {
      reduction.for_rows_of<drops ? 1 : depth>(
          block, lane,
          [&](std::int64_t row) {
            const std::int64_t at = row * reduction.padded + channel;
            Loaded loaded{read_vec8(x + at),
                          read_vec8(dy + at),
                          masked ? mask[at / vec8_size] : 0xFFU,
                          {},
                          {}};
            if constexpr (joins) loaded.other = read_vec8(other + at);
            if constexpr (added) loaded.added_x = read_vec8(added_x + at);
            return loaded;
          },
          [&](std::int64_t row, const Loaded& loaded) {
            Vec8 g = gradient(loaded);
            for (int i = 0; i < vec8_size; ++i) {
              if (masked && (loaded.bits >> i & 1U) == 0) g[i] = 0;
            }
            if constexpr (joins) {
              store<vec8_size>(kept + row * reduction.padded + channel, g);
            }
            if constexpr (added) {
              add_values(g, result.sums[0]);
              add_products(g, loaded.x.floats(), center, result.sums[1]);
              if constexpr (drops) {
                drop_samples(drop, row, g);
                add_values(g, result.sums[2]);
              }
              add_products(g, loaded.added_x.floats(), added_center, result.sums[3]);
            } else {
              if constexpr (drops) drop_samples(drop, row, g);
              add_values(g, result.sums[0]);
              add_products(g, loaded.x.floats(), center, result.sums[1]);
            }
          });
    };
    with_drops(drop, sum_rows);
    return result;
  }
  /// Rounded as stored.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static Vec8 gradient(const Loaded& loaded) {
    Vec8 g = loaded.dy.floats();
    if constexpr (joins) {
      const Vec8 others = loaded.other.floats();
      for (int i = 0; i < vec8_size; ++i) g[i] += others[i];
      g = packed<T>(g).floats();
    }
    return g;
  }
  LOCKSTEP_HOST_DEVICE static void add_values(const Vec8& values, Vec8& sums) {
    for (int i = 0; i < vec8_size; ++i) sums[i] += values[i];
  }
  LOCKSTEP_HOST_DEVICE static void add_products(const Vec8& g, const Vec8& values,
                                                const Vec8& center, Vec8& sums) {
    for (int i = 0; i < vec8_size; ++i) sums[i] += g[i] * (values[i] - center[i]);
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int block_column,
                                   const Partial& sums) const {
    store_partials(reduction, block, reduction.channel_of(block, block_column), sums, partials);
  }
};

/// Destination of one norm's gradients.
struct GradientsOut {
  const float* inverse_deviation;
  float* weight_gradient;
  float* bias_gradient;
  KeptGradients kept;
  LOCKSTEP_HOST_DEVICE void write(std::int64_t channel, double sum, double product) const {
    const auto bias = static_cast<float>(sum);
    const auto weight =
        static_cast<float>(product * static_cast<double>(inverse_deviation[channel]));
    bias_gradient[channel] = bias;
    weight_gradient[channel] = weight;
    if (kept.bias != nullptr) kept.bias[channel] = kept.adds ? kept.bias[channel] + bias : bias;
    if (kept.weight != nullptr) {
      kept.weight[channel] = kept.adds ? kept.weight[channel] + weight : weight;
    }
  }
};
[[nodiscard]] GradientsOut gradients_out(const NormSums& of) {
  return {of.norm.inverse_deviation, of.weight, of.bias, of.kept};
}

template <bool added>
struct CombineGradients {
  static constexpr bool few_blocks = added;  // few threads, with many loads
  using Sums = PartialSums<gradient_sums(added)>;
  using Partial = typename Sums::Partial;
  Sums sums;
  GradientsOut own;
  GradientsOut other;
  bool drops;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t block, int column,
                                                     int lane) const {
    return sums.partial(block * channels_per_block + column, lane);
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t block, int column, const Partial& total) const {
    const std::int64_t channel = block * channels_per_block + column;
    if (channel >= sums.padded) return;
    own.write(channel, total.sums[0], total.sums[1]);
    if constexpr (added) {
      other.write(channel, drops ? total.sums[2] : total.sums[0], total.sums[3]);
    }
  }
};

/// Input of the second kernel.
template <int kinds>
PartialSums<kinds> partial_sums(const RowReduction& reduction, const void* workspace) {
  return {static_cast<const float*>(workspace), reduction.chunks, reduction.padded};
}

void combine(Stream stream, const RowReduction& reduction, const NormSums& of,
             const NormSums* added, const void* workspace) {
  const auto start = [&]<bool adds>() {
    launch_blocks(
        stream, combining_blocks(reduction),
        CombineGradients<adds>{partial_sums<gradient_sums(adds)>(reduction, workspace),
                               gradients_out(of), adds ? gradients_out(*added) : GradientsOut{},
                               adds && added->norm.drop.any()});
  };
  with_flags<>(start, added != nullptr);
}

}  // namespace

std::size_t reduction_workspace(const Matrix& extent, int norms) {
  const auto kinds = static_cast<std::size_t>(gradient_sums(norms > 1));
  return kinds * sizeof(float) * static_cast<std::size_t>(row_reduction(extent).partials());
}

void sum_rows(Stream stream, DataType type, const Matrix& extent, const void* dy, float* sums,
              void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  with_type(type, [&]<typename T>(T*) {
    launch_blocks(
        stream, reduction.blocks(),
        ChunkSums<T>{reduction, static_cast<const T*>(dy), static_cast<float*>(workspace)});
  });
  launch_blocks(stream, combining_blocks(reduction),
                CombineSums{partial_sums<1>(reduction, workspace), sums});
}

void batch_norm_backward_sums(Stream stream, DataType type, const Matrix& extent,
                              const IncomingGradient& incoming, const std::uint8_t* mask,
                              const NormSums& of, const NormSums* added, void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  const SampleDrop drop = drop_of(of.norm, added != nullptr ? &added->norm : nullptr);
  with_type(type, [&]<typename T>(T*) {
    const auto start = [&]<bool masked, bool joins, bool adds>() {
      launch_blocks(
          stream, reduction.blocks(),
          ChunkGradients<T, masked, joins, adds>{
              reduction, static_cast<const T*>(incoming.dy), static_cast<const T*>(incoming.other),
              static_cast<T*>(incoming.masked), mask, static_cast<const T*>(of.x), of.norm.mean,
              adds ? static_cast<const T*>(added->x) : nullptr, adds ? added->norm.mean : nullptr,
              drop, static_cast<float*>(workspace)});
    };
    with_flags<>(start, mask != nullptr, incoming.other != nullptr, added != nullptr);
  });
  combine(stream, reduction, of, added, workspace);
}

void combine_gradients(Stream stream, const RowReduction& reduction, const NormSums& of,
                       const void* workspace) {
  combine(stream, reduction, of, nullptr, workspace);
}

}  // namespace lockstep::gpu
