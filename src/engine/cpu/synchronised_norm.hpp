#pragma once

#include "channel_rows.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "statistics.hpp"
#include "step.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep::cpu {

/// A batch norm over the global batch, with the ReLU behind it where one is fused: what its forward
/// and backward steps share. Sums over pixels are fp32 for 64 rows at most and fp64 from there on,
/// so that they do not depend on how the batch is divided but for such a row sum's rounding.
class SynchronisedNorm final {
 public:
  struct Options {
    double eps;
    bool relu;
    StatisticId mean;
    StatisticId variance;
    int threads;
  };
  SynchronisedNorm(const Desc& desc, const Options& options, StatisticsBlock& statistics,
                   const SumOverRanks& sum);

  /// (N, C, H, W) values of one layout and type, fp32 or bf16; scale and shift (C,).
  struct Forward {
    dnnl::memory source;
    dnnl::memory scale;
    dnnl::memory shift;
    dnnl::memory target;
  };
  /// `output` is forward's target, read where there is a ReLU.
  struct Backward {
    dnnl::memory source;
    dnnl::memory scale;
    dnnl::memory output;
    dnnl::memory gradient;
    dnnl::memory target;
  };
  void forward(const Forward& operands);
  /// Forward's values once more, by the statistics that it found.
  void forward_again(const Forward& operands);
  void backward(const Backward& operands);

  /// (C,) this rank's sums of the last backward, for the arena.
  [[nodiscard]] const float* scale_gradient() const noexcept { return scale_gradient_.data(); }
  [[nodiscard]] const float* shift_gradient() const noexcept { return shift_gradient_.data(); }

 private:
  template <typename T>
  void measure(const T* source);
  template <typename T>
  void normalize(const T* source, T* target) const;
  template <typename T>
  void measure_gradient(const T* source, const T* output, const T* gradient);
  template <typename T>
  void propagate(const T* source, const T* output, const T* gradient, T* target) const;
  /// Two sums a channel over this rank's values into sums_: make_terms(unit) gives what element i
  /// of lane l adds to them.
  template <typename MakeTerms>
  void sum_over_rows(const MakeTerms& make_terms);
  void take_in_statistics();

  ChannelRows rows_;
  Options options_;
  StatisticsBlock& statistics_;
  const SumOverRanks& sum_;
  bool bf16_;
  std::size_t channels_;
  double count_ = 0;               ///< values of a channel on all ranks
  AlignedBuffer<double> parts_;    ///< (threads, 2, C)
  AlignedBuffer<double> sums_;     ///< (2, C), this rank's
  AlignedBuffer<double> message_;  ///< what travels: two sums of each channel and the count
  AlignedBuffer<float> shift_;     ///< (C,) what sums are taken relative to: a value of the channel
  AlignedBuffer<float> mean_;      ///< (C,)
  AlignedBuffer<float> inverse_;   ///< (C,) 1 / standard deviation
  // target = slope * source + offset + factor * gradient, each (C,)
  AlignedBuffer<float> slope_;
  AlignedBuffer<float> offset_;
  AlignedBuffer<float> factor_;
  AlignedBuffer<float> scale_gradient_;
  AlignedBuffer<float> shift_gradient_;
};

/// One of a norm's calls, with its operands.
template <auto Call, typename Operands>
class SynchronisedNormStep final : public Step {
 public:
  SynchronisedNormStep(std::string_view name, std::shared_ptr<SynchronisedNorm> norm,
                       Operands operands)
      : name_(name), norm_(std::move(norm)), operands_(std::move(operands)) {}
  void run() override { ((*norm_).*Call)(operands_); }
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  std::string_view name_;  ///< a literal
  std::shared_ptr<SynchronisedNorm> norm_;
  Operands operands_;
};

using SynchronisedNormForward =
    SynchronisedNormStep<&SynchronisedNorm::forward, SynchronisedNorm::Forward>;
using SynchronisedNormAgain =
    SynchronisedNormStep<&SynchronisedNorm::forward_again, SynchronisedNorm::Forward>;
using SynchronisedNormBackward =
    SynchronisedNormStep<&SynchronisedNorm::backward, SynchronisedNorm::Backward>;

}  // namespace lockstep::cpu
