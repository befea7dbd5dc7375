#pragma once

#include "kernels.hpp"
#include "vector_io.hpp"

/// The arithmetic of norms, for `count` channels of values stored as T.
namespace lockstep::gpu {

/// Reads the values of `count` channels.
template <int count>
struct ReadFrom {
  std::int64_t channel;
  LOCKSTEP_HOST_DEVICE Floats<count> operator()(const float* values) const {
    return load<count>(values + channel);
  }
};

/// Whether the means are folded into the additive terms. They may be large compared with the
/// deviations, but 16-bit values lose those digits anyway.
template <typename T>
inline constexpr bool folds_means = sizeof(T) == 2;

/// A norm's values. `read` loads those of the channels.
template <typename T, int count>
struct ChannelNorm {
  Floats<count> mean;
  Floats<count> scale;
  Floats<count> bias;
  template <typename Read>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static ChannelNorm load(const Normalization& norm,
                                                             const Read& read) {
    ChannelNorm result{read(norm.mean), read(norm.weight), read(norm.bias)};
    const Floats<count> inverse = read(norm.inverse_deviation);
    for (int i = 0; i < count; ++i) {
      result.scale[i] *= inverse[i];
      if constexpr (folds_means<T>) result.bias[i] -= result.mean[i] * result.scale[i];
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void normalize(Floats<count>& values) const {
    for (int i = 0; i < count; ++i) {
      if constexpr (!folds_means<T>) values[i] -= mean[i];
      values[i] = values[i] * scale[i] + bias[i];
    }
  }
};

/// Terms of the gradient of a norm's input: dx = scale * g + slope * (x - mean) + offset
template <typename T, int count>
struct ChannelGradient {
  Floats<count> mean;
  Floats<count> scale;
  Floats<count> slope;
  Floats<count> offset;
  /// `share`: a value's weight in the means, 1 / elements.
  template <typename Read>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE static ChannelGradient load(const NormGradient& of,
                                                                 float share, const Read& read) {
    ChannelGradient result{read(of.norm.mean), read(of.norm.weight), read(of.weight_gradient),
                           read(of.bias_gradient)};
    const Floats<count> inverse = read(of.norm.inverse_deviation);
    for (int i = 0; i < count; ++i) {
      result.scale[i] *= inverse[i];
      result.slope[i] *= -(inverse[i] * share) * result.scale[i];
      result.offset[i] *= -share * result.scale[i];
      if constexpr (folds_means<T>) result.offset[i] -= result.mean[i] * result.slope[i];
    }
    return result;
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Floats<count> of(const Floats<count>& g,
                                                      const Floats<count>& values) const {
    Floats<count> result;
    for (int i = 0; i < count; ++i) {
      const float distance = folds_means<T> ? values[i] : values[i] - mean[i];
      result[i] = scale[i] * g[i] + (slope[i] * distance + offset[i]);
    }
    return result;
  }
};

}  // namespace lockstep::gpu
