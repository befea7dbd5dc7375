#include "batch_norm_state.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace lockstep::cpu {
namespace {

/// Null for an empty memory object.
void* data_of(const dnnl::memory& memory) {
  return memory ? memory.get_data_handle() : nullptr;
}
const float* values_of(const dnnl::memory& memory) {
  return static_cast<const float*>(memory.get_data_handle());
}
std::uint8_t* bits_of(const dnnl::memory& memory) {
  return static_cast<std::uint8_t*>(data_of(memory));
}

}  // namespace

BatchNormState::BatchNormState(const Desc& desc, const Options& options,
                               StatisticsBlock& statistics)
    : passes_(desc, options.threads),
      options_(options),
      statistics_(statistics),
      channels_(static_cast<std::size_t>(passes_.rows().channels())),
      message_(2 * channels_ + 1),
      scale_gradient_(channels_),
      shift_gradient_(channels_) {
  const auto padded = static_cast<std::size_t>(passes_.rows().padded_channels());
  for (AlignedBuffer<float>* values :
       {&reference_, &mean_, &inverse_, &slope_, &offset_, &factor_}) {
    *values = AlignedBuffer<float>(padded);
  }
  if (options_.drop.probability > 0) {
    row_factors_ = AlignedBuffer<float>(static_cast<std::size_t>(passes_.rows().all_rows()));
  }
}

void BatchNormState::set_row_factors() {
  const auto samples = static_cast<std::size_t>(options_.samples);
  const std::size_t pixels = row_factors_.size() / samples;
  const DroppedBlocks& dropped = *options_.dropped;
  for (std::size_t n = 0; n < samples && pixels > 0; ++n) {
    const bool drops = dropped.drops(static_cast<std::int64_t>(n), options_.drop.block);
    std::fill_n(row_factors_.data() + n * pixels, pixels, drops ? 0.0F : options_.drop.scale());
  }
}

void BatchNormState::take_in_statistics(std::span<const double> sums) {
  const double mine = passes_.rows().count();
  for (std::size_t c = 0; c < channels_; ++c) {
    const double centred = sums[c] / mine;
    const double mean = double{reference_[c]} + centred;
    message_[c] = mine * mean;
    message_[channels_ + c] = sums[channels_ + c] - mine * centred * centred + mine * mean * mean;
  }
  message_[2 * channels_] = mine;
  if (options_.sum) options_.sum(message_.span());
  count_ = message_[2 * channels_];
  float* const means = statistics_.of(options_.mean);
  float* const variances = statistics_.of(options_.variance);
  for (std::size_t c = 0; c < channels_; ++c) {
    const double mean = message_[c] / count_;
    double variance = message_[channels_ + c] / count_ - mean * mean;
    if (variance < 0) variance = 0;  // from rounding; this form keeps NaN
    mean_[c] = means[c] = static_cast<float>(mean);
    variances[c] = static_cast<float>(variance);
    inverse_[c] = static_cast<float>(1 / std::sqrt(variance + options_.eps));
  }
  statistics_.statistics.set_elements(options_.variance, count_);
}

void BatchNormState::set_normalization(const Forward& operands) {
  const float* const scale = values_of(operands.scale);
  for (std::size_t c = 0; c < channels_; ++c) slope_[c] = scale[c] * inverse_[c];
  std::copy_n(values_of(operands.shift), channels_, offset_.data());
}

void BatchNormState::forward(const Forward& operands) {
  const void* const source = data_of(operands.source);
  passes_.first_values(source, reference_.data());
  take_in_statistics(passes_.sum_values(source, reference_.data()));
  set_normalization(operands);
  if (options_.drop.probability > 0) set_row_factors();
  recompute_forward(operands);
}

void BatchNormState::infer(const Forward& operands) {
  const float* const variances = statistics_.of(options_.variance);
  for (std::size_t c = 0; c < channels_; ++c) {
    inverse_[c] = static_cast<float>(1 / std::sqrt(double{variances[c]} + options_.eps));
  }
  std::copy_n(statistics_.of(options_.mean), channels_, mean_.data());
  set_normalization(operands);
  if (options_.drop.probability > 0) set_row_factors();
  recompute_forward(operands);
}

void BatchNormState::recompute_forward(const Forward& operands) {
  passes_.normalize({.source = data_of(operands.source),
                     .addend = data_of(operands.addend),
                     .mean = mean_.data(),
                     .slope = slope_.data(),
                     .offset = offset_.data(),
                     .relu = options_.relu,
                     .mask = bits_of(operands.mask),
                     .target = data_of(operands.target),
                     .row_factors = row_factors()});
}

void BatchNormState::sum_gradients(const Backward& operands) {
  const std::span<double> sums = passes_.sum_gradients({.source = data_of(operands.source),
                                                        .gradient = data_of(operands.gradient),
                                                        .addend = data_of(operands.gradient_addend),
                                                        .mean = mean_.data(),
                                                        .mask = bits_of(operands.mask),
                                                        .masked = data_of(operands.masked),
                                                        .row_factors = row_factors()});
  if (options_.is_fixed) return;  // the message stays zero
  for (std::size_t c = 0; c < channels_; ++c) {
    sums[channels_ + c] *= double{inverse_[c]};  // now of g * normalised value
    shift_gradient_[c] = static_cast<float>(sums[c]);
    scale_gradient_[c] = static_cast<float>(sums[channels_ + c]);
  }
  std::ranges::copy(sums, message_.data());
  if (options_.sum) options_.sum(message_.span().first(2 * channels_));
}

void BatchNormState::backward(const Backward& operands) {
  const std::uint8_t* const mask = bits_of(operands.mask);
  void* const masked = data_of(operands.masked);
  if (!options_.is_fixed || masked != nullptr) sum_gradients(operands);
  if (!operands.target) return;
  // d(source) = scale / deviation * (g - mean of g - normalised * mean of (g * normalised))
  const float* const scale = values_of(operands.scale);
  for (std::size_t c = 0; c < channels_; ++c) {
    const double slope = double{scale[c]} * double{inverse_[c]};
    factor_[c] = static_cast<float>(slope);
    offset_[c] = static_cast<float>(-slope * message_[c] / count_);
    slope_[c] = static_cast<float>(-slope * double{inverse_[c]} * message_[channels_ + c] / count_);
  }
  passes_.propagate({.source = data_of(operands.source),
                     .gradient = masked != nullptr ? masked : data_of(operands.gradient),
                     .mask = masked != nullptr ? nullptr : mask,
                     .mean = mean_.data(),
                     .slope = slope_.data(),
                     .offset = offset_.data(),
                     .factor = factor_.data(),
                     .target = data_of(operands.target),
                     .row_factors = row_factors()});
}

}  // namespace lockstep::cpu
