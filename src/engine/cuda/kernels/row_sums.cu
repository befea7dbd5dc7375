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

/// Of g and of g * (x - mean).
template <typename T, bool masked>
struct ChunkGradients {
  using Partial = OctetSums<2>;
  RowReduction reduction;
  const T* x;
  const T* dy;
  const std::uint8_t* mask;
  const float* mean;
  float* partials;

  struct Loaded {
    RawOctet<T> x;
    RawOctet<T> dy;
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
          return Loaded{read_octet(x + at, whole), read_octet(dy + at, whole),
                        masked ? mask[at / octet] : 0xFFU};
        },
        [&](std::int64_t, const Loaded& loaded) {
          const Octet values = loaded.x.floats();
          const Octet gradients = loaded.dy.floats();
          for (int i = 0; i < octet; ++i) {
            const float g = (loaded.bits >> i & 1U) != 0 ? gradients[i] : 0.0F;
            result.sums[0][i] += g;
            result.sums[1][i] += g * (values[i] - center[i]);
          }
        });
    return result;
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
                              const void* dy, const std::uint8_t* mask, const Normalization& norm,
                              float* weight_gradient, float* bias_gradient,
                              const KeptGradients& kept, void* workspace) {
  const RowReduction reduction = row_reduction(extent);
  auto* const partials = static_cast<float*>(workspace);
  with_type(type, [&]<typename T>(T*) {
    const auto* const values = static_cast<const T*>(x);
    const auto* const gradients = static_cast<const T*>(dy);
    if (mask != nullptr) {
      launch_teams(
          stream, reduction.teams(),
          ChunkGradients<T, true>{reduction, values, gradients, mask, norm.mean, partials});
    } else {
      launch_teams(
          stream, reduction.teams(),
          ChunkGradients<T, false>{reduction, values, gradients, nullptr, norm.mean, partials});
    }
  });
  launch_teams(stream, combining_teams(reduction),
               CombineGradients{partial_sums<2>(reduction, workspace), norm.variance, norm.eps,
                                bias_gradient, weight_gradient, kept});
}

}  // namespace lockstep::cuda
