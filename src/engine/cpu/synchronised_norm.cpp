#include "synchronised_norm.hpp"

#include "lockstep/core/bfloat16.hpp"

#include <omp.h>

#include <array>
#include <cmath>
#include <limits>

namespace lockstep::cpu {
namespace {

using Lanes = std::array<float, ChannelRows::widest>;

template <typename T>
T* data_of(const dnnl::memory& memory) {
  return static_cast<T*>(memory.get_data_handle());
}

/// What an element adds to its channel's two sums.
struct Terms {
  float first;
  float second;
};

/// Two sums of each lane, in fp32 over some rows and in fp64 over all of a unit's.
class LaneSums final {
 public:
  Lanes first{};
  Lanes second{};

  /// After each row.
  void count_row() noexcept {
    if (++rows_ == 64) flush();
  }
  /// Adds the unit's channels to (2, C) sums.
  void add_to(double* to, std::size_t channels, const ChannelRows& rows,
              std::ptrdiff_t unit) noexcept {
    flush();
    to += rows.first_channel(unit);
    for (int lane = 0; lane < ChannelRows::widest; ++lane) {
      const int channel = rows.channel_of_lane(lane);
      if (channel >= rows.unit_channels(unit)) continue;  // padding, which may be NaN
      to[channel] += wide_first_[at(lane)];
      to[static_cast<std::size_t>(channel) + channels] += wide_second_[at(lane)];
    }
  }

 private:
  static std::size_t at(int lane) noexcept { return static_cast<std::size_t>(lane); }
  void flush() noexcept {
    for (std::size_t lane = 0; lane < first.size(); ++lane) {
      wide_first_[lane] += double{first[lane]};
      wide_second_[lane] += double{second[lane]};
    }
    first.fill(0);
    second.fill(0);
    rows_ = 0;
  }

  std::array<double, ChannelRows::widest> wide_first_{};
  std::array<double, ChannelRows::widest> wide_second_{};
  int rows_ = 0;
};

/// A value per channel, for each lane of a unit's rows.
Lanes spread(const AlignedBuffer<float>& values, const ChannelRows& rows, std::ptrdiff_t unit) {
  Lanes lanes{};
  const auto first = static_cast<std::size_t>(rows.first_channel(unit));
  for (int lane = 0; lane < ChannelRows::widest; ++lane) {
    const int channel = rows.channel_of_lane(lane);
    if (channel < rows.unit_channels(unit)) {
      lanes[static_cast<std::size_t>(lane)] = values[first + static_cast<std::size_t>(channel)];
    }
  }
  return lanes;
}

}  // namespace

SynchronisedNorm::SynchronisedNorm(const Desc& desc, const Options& options,
                                   StatisticsBlock& statistics, const SumOverRanks& sum)
    : rows_(desc),
      options_(options),
      statistics_(statistics),
      sum_(sum),
      bf16_(desc.data_type() == DataType::bf16),
      channels_(static_cast<std::size_t>(rows_.channels())),
      parts_(static_cast<std::size_t>(options.threads) * 2 * channels_),
      sums_(2 * channels_),
      message_(2 * channels_ + 1),
      shift_(channels_),
      mean_(channels_),
      inverse_(channels_),
      slope_(channels_),
      offset_(channels_),
      factor_(channels_),
      scale_gradient_(channels_),
      shift_gradient_(channels_) {}

template <typename MakeTerms>
void SynchronisedNorm::sum_over_rows(const MakeTerms& make_terms) {
  std::fill_n(parts_.data(), parts_.size(), 0.0);
#pragma omp parallel
  {
    double* const part =
        parts_.data() + static_cast<std::size_t>(omp_get_thread_num()) * 2 * channels_;
#pragma omp for schedule(static)
    for (std::ptrdiff_t unit = 0; unit < rows_.units(); ++unit) {
      const auto terms = make_terms(unit);
      LaneSums sums;
      rows_.for_each_row(unit, [&](std::ptrdiff_t offset, auto width) {
        for (int lane = 0; lane < width; ++lane) {
          const auto l = static_cast<std::size_t>(lane);
          const Terms both = terms(offset + lane, l);
          sums.first[l] += both.first;
          sums.second[l] += both.second;
        }
        sums.count_row();
      });
      sums.add_to(part, channels_, rows_, unit);
    }
  }
  // In the threads' order.
  for (std::size_t i = 0; i < 2 * channels_; ++i) {
    sums_[i] = 0;
    for (std::size_t at = i; at < parts_.size(); at += 2 * channels_) sums_[i] += parts_[at];
  }
}

template <typename T>
void SynchronisedNorm::measure(const T* source) {
  for (std::ptrdiff_t unit = 0; unit < rows_.image_units(); ++unit) {
    const auto first = static_cast<std::size_t>(rows_.first_channel(unit));
    for (int lane = 0; lane < rows_.unit_channels(unit); ++lane) {
      shift_[first + static_cast<std::size_t>(lane)] = float{source[rows_.offset_of(unit) + lane]};
    }
  }
  sum_over_rows([&](std::ptrdiff_t unit) {
    return [source, shift = spread(shift_, rows_, unit)](std::ptrdiff_t i, std::size_t lane) {
      const float value = float{source[i]} - shift[lane];
      return Terms{.first = value, .second = value * value};
    };
  });
}

void SynchronisedNorm::take_in_statistics() {
  const double mine = rows_.count();
  for (std::size_t c = 0; c < channels_; ++c) {
    const double centred = sums_[c] / mine;
    const double mean = double{shift_[c]} + centred;
    message_[c] = mine * mean;
    message_[channels_ + c] = sums_[channels_ + c] - mine * centred * centred + mine * mean * mean;
  }
  message_[2 * channels_] = mine;
  sum_(message_.span());
  count_ = message_[2 * channels_];
  float* const means = statistics_.of(options_.mean);
  float* const variances = statistics_.of(options_.variance);
  for (std::size_t c = 0; c < channels_; ++c) {
    const double mean = message_[c] / count_;
    double variance = message_[channels_ + c] / count_ - mean * mean;
    if (variance < 0) variance = 0;  // by rounding; so written, NaN stays NaN
    mean_[c] = means[c] = static_cast<float>(mean);
    variances[c] = static_cast<float>(variance);
    inverse_[c] = static_cast<float>(1 / std::sqrt(variance + options_.eps));
  }
  statistics_.set_elements(options_.variance, count_);
}

template <typename T>
void SynchronisedNorm::normalize(const T* source, T* target) const {
  const float least = options_.relu ? 0.0F : -std::numeric_limits<float>::infinity();
#pragma omp parallel for schedule(static)
  for (std::ptrdiff_t unit = 0; unit < rows_.units(); ++unit) {
    const Lanes mean = spread(mean_, rows_, unit);
    const Lanes slope = spread(slope_, rows_, unit);
    const Lanes shift = spread(offset_, rows_, unit);
    rows_.for_each_row(unit, [&](std::ptrdiff_t offset, auto width) {
      for (int lane = 0; lane < width; ++lane) {
        const auto l = static_cast<std::size_t>(lane);
        const float value = (float{source[offset + lane]} - mean[l]) * slope[l] + shift[l];
        target[offset + lane] = T(value < least ? least : value);
      }
    });
  }
}

void SynchronisedNorm::forward(const Forward& operands) {
  const void* const source = operands.source.get_data_handle();
  if (bf16_) {
    measure(static_cast<const Bfloat16*>(source));
  } else {
    measure(static_cast<const float*>(source));
  }
  take_in_statistics();
  const float* const scale = data_of<float>(operands.scale);
  const float* const shift = data_of<float>(operands.shift);
  for (std::size_t c = 0; c < channels_; ++c) {
    slope_[c] = scale[c] * inverse_[c];
    offset_[c] = shift[c];
  }
  forward_again(operands);
}

void SynchronisedNorm::forward_again(const Forward& operands) {
  if (bf16_) {
    normalize(data_of<const Bfloat16>(operands.source), data_of<Bfloat16>(operands.target));
  } else {
    normalize(data_of<const float>(operands.source), data_of<float>(operands.target));
  }
}

template <typename T>
void SynchronisedNorm::measure_gradient(const T* source, const T* output, const T* gradient) {
  sum_over_rows([&](std::ptrdiff_t unit) {
    return [=, relu = options_.relu, mean = spread(mean_, rows_, unit)](std::ptrdiff_t i,
                                                                        std::size_t lane) {
      const bool passes = !relu || float{output[i]} > 0.0F;
      const float value = passes ? float{gradient[i]} : 0.0F;
      return Terms{.first = value, .second = value * (float{source[i]} - mean[lane])};
    };
  });
}

template <typename T>
void SynchronisedNorm::propagate(const T* source, const T* output, const T* gradient,
                                 T* target) const {
#pragma omp parallel for schedule(static)
  for (std::ptrdiff_t unit = 0; unit < rows_.units(); ++unit) {
    const Lanes mean = spread(mean_, rows_, unit);
    const Lanes slope = spread(slope_, rows_, unit);
    const Lanes shift = spread(offset_, rows_, unit);
    const Lanes factor = spread(factor_, rows_, unit);
    rows_.for_each_row(unit, [&](std::ptrdiff_t offset, auto width) {
      for (int lane = 0; lane < width; ++lane) {
        const auto l = static_cast<std::size_t>(lane);
        const bool passes = !options_.relu || float{output[offset + lane]} > 0.0F;
        const float value = passes ? float{gradient[offset + lane]} : 0.0F;
        target[offset + lane] =
            T(factor[l] * value + slope[l] * (float{source[offset + lane]} - mean[l]) + shift[l]);
      }
    });
  }
}

void SynchronisedNorm::backward(const Backward& operands) {
  const auto on_type = [&]<typename T>(T) {
    measure_gradient<T>(data_of<T>(operands.source), data_of<T>(operands.output),
                        data_of<T>(operands.gradient));
    for (std::size_t c = 0; c < channels_; ++c) {
      sums_[channels_ + c] *= double{inverse_[c]};  // by the normalised values now
      shift_gradient_[c] = static_cast<float>(sums_[c]);
      scale_gradient_[c] = static_cast<float>(sums_[channels_ + c]);
    }
    std::copy_n(sums_.data(), 2 * channels_, message_.data());
    sum_(message_.span().first(2 * channels_));
    // d(source) = scale / deviation * (g - mean of g - normalised * mean of (g * normalised))
    const float* const scale = data_of<float>(operands.scale);
    for (std::size_t c = 0; c < channels_; ++c) {
      const double slope = double{scale[c]} * double{inverse_[c]};
      factor_[c] = static_cast<float>(slope);
      offset_[c] = static_cast<float>(-slope * message_[c] / count_);
      slope_[c] =
          static_cast<float>(-slope * double{inverse_[c]} * message_[channels_ + c] / count_);
    }
    propagate<T>(data_of<T>(operands.source), data_of<T>(operands.output),
                 data_of<T>(operands.gradient), data_of<T>(operands.target));
  };
  if (bf16_) {
    on_type(Bfloat16{});
  } else {
    on_type(0.0F);
  }
}

}  // namespace lockstep::cpu
