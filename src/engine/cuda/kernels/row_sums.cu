#include "kernels.hpp"
#include "row_reduction.hpp"

#include <cmath>

namespace lockstep::cuda {
namespace {

template <typename T>
struct ChunkSums {
  using Partial = OctetSums<1>;
  RowReduction reduction;
  const T* x;
  float* partials;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t team, int of_team,
                                                     int lane) const {
    const OctetColumn column = reduction.column_of(team, of_team);
    Partial result;
    result.clear();
    for_rows<piece_size<T> / 2>(
        reduction.chunk_of(team) * reduction.lanes() + lane, reduction.stride(), column.rows,
        [&](std::int64_t row) {
          return read_octet(x + row * reduction.extent.width + column.at, row < column.whole_rows);
        },
        [&](std::int64_t, const RawOctet<T>& raw) {
          const Octet values = raw.floats();
          for (int i = 0; i < octet; ++i) result.sums[0][i] += values[i];
        });
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t team, int of_team, const Partial& sums) const {
    store_partial(reduction, team, reduction.column_of(team, of_team).at, 0, sums.sums[0],
                  partials);
  }
};

struct CombineSums {
  using Sums = PartialSums<1>;
  using Partial = Sums::Partial;
  Sums sums;
  float* out;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t team, int column,
                                                     int lane) const {
    return sums.partial(team * channels_a_team + column, lane);
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t team, int column, const Partial& total) const {
    const std::int64_t channel = team * channels_a_team + column;
    if (channel < sums.padded) out[channel] = static_cast<float>(total.sums[0]);
  }
};

/// Of g and of g * (x - mean). `joins`: g is made here, of two, and kept.
template <typename T, bool masked, bool joins>
struct ChunkGradients {
  using Partial = OctetSums<2>;
  RowReduction reduction;
  const T* x;
  const T* dy;
  const T* other;
  T* kept;
  const std::uint8_t* mask;
  const float* mean;
  float* partials;

  struct Loaded {
    RawOctet<T> x;
    RawOctet<T> dy;
    RawOctet<T> other;
    std::uint32_t bits;
  };
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t team, int of_team,
                                                     int lane) const {
    const OctetColumn column = reduction.column_of(team, of_team);
    Partial result;
    result.clear();
    if (column.rows == 0) return result;
    const Octet center = load_channels(reduction.extent, mean, column.at);
    for_rows<piece_size<T> / 4>(
        reduction.chunk_of(team) * reduction.lanes() + lane, reduction.stride(), column.rows,
        [&](std::int64_t row) {
          const std::int64_t at = row * reduction.extent.width + column.at;
          const bool whole = row < column.whole_rows;
          Loaded loaded{read_octet(x + at, whole),
                        read_octet(dy + at, whole),
                        {},
                        masked ? mask[at / octet] : 0xFFU};
          if constexpr (joins) loaded.other = read_octet(other + at, whole);
          return loaded;
        },
        [&](std::int64_t row, const Loaded& loaded) {
          const Octet values = loaded.x.floats();
          Octet g = gradient(loaded);
          for (int i = 0; i < octet; ++i) {
            if (masked && (loaded.bits >> i & 1U) == 0) g[i] = 0;
            result.sums[0][i] += g[i];
            result.sums[1][i] += g[i] * (values[i] - center[i]);
          }
          if constexpr (joins) {
            write_octet(kept + row * reduction.extent.width + column.at, packed<T>(g),
                        row < column.whole_rows);
          }
        });
    return result;
  }
  /// As it is stored.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static Octet gradient(const Loaded& loaded) {
    Octet g = loaded.dy.floats();
    if constexpr (joins) {
      const Octet others = loaded.other.floats();
      for (int i = 0; i < octet; ++i) g[i] += others[i];
      g = packed<T>(g).floats();
    }
    return g;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t team, int of_team, const Partial& sums) const {
    const std::int64_t at = reduction.column_of(team, of_team).at;
    store_partial(reduction, team, at, 0, sums.sums[0], partials);
    store_partial(reduction, team, at, 1, sums.sums[1], partials);
  }
};

struct CombineGradients {
  using Sums = PartialSums<2>;
  using Partial = Sums::Partial;
  Sums sums;
  const float* variance;
  float eps;
  float* bias_gradient;
  float* weight_gradient;
  KeptGradients kept;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t team, int column,
                                                     int lane) const {
    return sums.partial(team * channels_a_team + column, lane);
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t team, int column, const Partial& total) const {
    const std::int64_t channel = team * channels_a_team + column;
    if (channel >= sums.padded) return;
    const double deviation = std::sqrt(static_cast<double>(variance[channel] + eps));
    const auto bias = static_cast<float>(total.sums[0]);
    const auto weight = static_cast<float>(total.sums[1] / deviation);
    bias_gradient[channel] = bias;
    weight_gradient[channel] = weight;
    if (kept.bias != nullptr) kept.bias[channel] = kept.adds ? kept.bias[channel] + bias : bias;
    if (kept.weight != nullptr) {
      kept.weight[channel] = kept.adds ? kept.weight[channel] + weight : weight;
    }
  }
};

/// What the second kernel adds up.
template <int kinds>
PartialSums<kinds> partial_sums(const RowReduction& reduction, const void* workspace) {
  return {static_cast<const float*>(workspace), reduction.partials() / reduction.extent.padded,
          reduction.extent.padded};
}

}  // namespace

std::size_t reduction_workspace(const Matrix& extent) {
  constexpr std::size_t kinds = 2;
  return kinds * sizeof(float) * static_cast<std::size_t>(row_reduction(extent).partials());
}

void sum_rows(Stream stream, DataType type, const Matrix& extent, const void* dy, float* sums,
              void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  with_type(type, [&]<typename T>(T*) {
    launch_teams(
        stream, reduction.teams(),
        ChunkSums<T>{reduction, static_cast<const T*>(dy), static_cast<float*>(workspace)});
  });
  launch_teams(stream, combining_teams(reduction),
               CombineSums{partial_sums<1>(reduction, workspace), sums});
}

void batch_norm_backward_sums(Stream stream, DataType type, const Matrix& extent, const void* x,
                              const IncomingGradient& incoming, const std::uint8_t* mask,
                              const Normalization& norm, float* weight_gradient,
                              float* bias_gradient, const KeptGradients& kept, void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  with_type(type, [&]<typename T>(T*) {
    const auto start = [&]<typename Functor>(Functor) {
      launch_teams(stream, reduction.teams(),
                   Functor{reduction, static_cast<const T*>(x), static_cast<const T*>(incoming.dy),
                           static_cast<const T*>(incoming.other), static_cast<T*>(incoming.masked),
                           mask, norm.mean, static_cast<float*>(workspace)});
    };
    const bool joins = incoming.other != nullptr;
    if (mask != nullptr) {
      joins ? start(ChunkGradients<T, true, true>{}) : start(ChunkGradients<T, true, false>{});
    } else {
      joins ? start(ChunkGradients<T, false, true>{}) : start(ChunkGradients<T, false, false>{});
    }
  });
  launch_teams(stream, combining_teams(reduction),
               CombineGradients{partial_sums<2>(reduction, workspace), norm.variance, norm.eps,
                                bias_gradient, weight_gradient, kept});
}

}  // namespace lockstep::cuda
