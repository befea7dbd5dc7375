#pragma once

#include "lockstep/engine/sum_over_ranks.hpp"
#include "norm_passes.hpp"
#include "statistics.hpp"
#include "step.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace lockstep::cpu {

/// A batch norm, over this rank's samples or all ranks', with the addition and the ReLU behind it
/// where they are fused: what its steps share. Sums over pixels are fp32 for 64 rows at most and
/// fp64 from there on, so that they do not depend on how the batch is divided but for such a row
/// sum's rounding.
class BatchNormState final {
 public:
  struct Options {
    double eps;
    bool relu;
    StatisticId mean;
    StatisticId variance;
    int threads;
    SumOverRanks sum;  ///< none: over this rank's samples
  };
  BatchNormState(const Desc& desc, const Options& options, StatisticsBlock& statistics);

  [[nodiscard]] std::int64_t mask_bytes() const noexcept { return passes_.rows().mask_bytes(); }

  /// (N, C, H, W) values of one layout and type, fp32 or bf16; scale and shift (C,).
  struct Forward {
    dnnl::memory source;
    dnnl::memory addend;  ///< may be empty
    dnnl::memory scale;
    dnnl::memory shift;
    dnnl::memory target;
    dnnl::memory mask;  ///< bits of the ReLU, for backward; may be empty
  };
  struct Backward {
    dnnl::memory source;
    dnnl::memory scale;
    dnnl::memory mask;  ///< forward's; may be empty
    dnnl::memory gradient;
    dnnl::memory gradient_addend;  ///< what the gradient lacks; may be empty
    dnnl::memory masked;  ///< gets the gradient behind the ReLU, which is the addend's; may be
                          ///< empty where nothing is added
    dnnl::memory target;  ///< may be empty: nobody needs the source's gradient
  };
  void forward(const Forward& operands);
  /// Forward's values once more, by the statistics that it found.
  void forward_again(const Forward& operands);
  /// By the statistics given.
  void infer(const Forward& operands);
  void backward(const Backward& operands);

  /// (C,) this rank's sums of the last backward, for the arena.
  [[nodiscard]] const float* scale_gradient() const noexcept { return scale_gradient_.data(); }
  [[nodiscard]] const float* shift_gradient() const noexcept { return shift_gradient_.data(); }

 private:
  void take_in_statistics(std::span<const double> sums);
  void set_normalization(const Forward& operands);

  NormPasses passes_;
  Options options_;
  StatisticsBlock& statistics_;
  std::size_t channels_;
  double count_ = 0;               ///< values of a channel on all ranks
  AlignedBuffer<double> message_;  ///< what is reduced: two sums of each channel and the count
  // (C,), padded as the layout is
  AlignedBuffer<float> reference_;  ///< what sums are taken relative to: a value of the channel
  AlignedBuffer<float> mean_;
  AlignedBuffer<float> inverse_;  ///< 1 / standard deviation
  // target = slope * (source - mean) + offset + factor * gradient
  AlignedBuffer<float> slope_;
  AlignedBuffer<float> offset_;
  AlignedBuffer<float> factor_;
  AlignedBuffer<float> scale_gradient_;
  AlignedBuffer<float> shift_gradient_;
};

/// One of a norm's calls, with its operands.
template <auto Call, typename Operands>
class BatchNormStep final : public Step {
 public:
  BatchNormStep(std::string name, std::shared_ptr<BatchNormState> norm, Operands operands)
      : name_(std::move(name)), norm_(std::move(norm)), operands_(std::move(operands)) {}
  void run() override { ((*norm_).*Call)(operands_); }
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  std::string name_;
  std::shared_ptr<BatchNormState> norm_;
  Operands operands_;
};

using BatchNormForward = BatchNormStep<&BatchNormState::forward, BatchNormState::Forward>;
using BatchNormAgain = BatchNormStep<&BatchNormState::forward_again, BatchNormState::Forward>;
using BatchNormInference = BatchNormStep<&BatchNormState::infer, BatchNormState::Forward>;
using BatchNormBackward = BatchNormStep<&BatchNormState::backward, BatchNormState::Backward>;

}  // namespace lockstep::cpu
