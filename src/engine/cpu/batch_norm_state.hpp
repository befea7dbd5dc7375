#pragma once

#include "lockstep/core/dropped_blocks.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/graph/ops.hpp"
#include "norm_passes.hpp"
#include "statistics.hpp"
#include "step.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace lockstep::cpu {

/// State shared by the steps of a batch norm and of its fused addition and ReLU, if any. Statistics
/// are over this rank's or all ranks' samples. At most 64 rows are summed in fp32, and these sums
/// in fp64, so the division of a batch changes only the rounding of the fp32 sums.
class BatchNormState final {
 public:
  struct Options {
    double eps;
    bool relu;
    StatisticId mean;
    StatisticId variance;
    int threads;
    SumOverRanks sum;                        ///< empty: over this rank's samples
    bool is_fixed = false;                   ///< running statistics, also in training
    StochasticDepth drop = {};               ///< in training
    std::int64_t samples = 0;                ///< of a batch
    const DroppedBlocks* dropped = nullptr;  ///< by the batch that forward computes
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
    dnnl::memory mask;  ///< the ReLU's bits, for backward; may be empty
  };
  struct Backward {
    dnnl::memory source;
    dnnl::memory scale;
    dnnl::memory mask;  ///< forward's; may be empty
    dnnl::memory gradient;
    dnnl::memory gradient_addend;  ///< pending addend of the gradient; may be empty
    dnnl::memory masked;  ///< receives the gradient after the ReLU's mask, which is also the
                          ///< addend's; may be empty if nothing is added
    dnnl::memory target;  ///< may be empty if the source's gradient is not needed
  };
  void forward(const Forward& operands);
  /// Recomputes forward's values with forward's statistics.
  void recompute_forward(const Forward& operands);
  /// Uses the loaded running statistics, also as forward with fixed ones.
  void infer(const Forward& operands);
  void backward(const Backward& operands);

  /// (C,) this rank's sums of the last backward, for the arena.
  [[nodiscard]] const float* scale_gradient() const noexcept { return scale_gradient_.data(); }
  [[nodiscard]] const float* shift_gradient() const noexcept { return shift_gradient_.data(); }

 private:
  void take_in_statistics(std::span<const double> sums);
  /// Computes the parameters' gradients, and what the source's gradient needs.
  void sum_gradients(const Backward& operands);
  void set_normalization(const Forward& operands);
  void set_row_factors();
  /// Null: none.
  [[nodiscard]] const float* row_factors() const noexcept {
    return row_factors_.size() == 0 ? nullptr : row_factors_.data();
  }

  NormPasses passes_;
  Options options_;
  StatisticsBlock& statistics_;
  std::size_t channels_;
  double count_ = 1;               ///< values per channel on all ranks
  AlignedBuffer<double> message_;  ///< reduction buffer: two sums per channel, and the count
  // (C,), padded like the layout
  AlignedBuffer<float> reference_;  ///< offset of the sums: one value of the channel
  AlignedBuffer<float> mean_;
  AlignedBuffer<float> inverse_;  ///< 1 / standard deviation
  // target = slope * (source - mean) + offset + factor * gradient
  AlignedBuffer<float> slope_;
  AlignedBuffer<float> offset_;
  AlignedBuffer<float> factor_;
  AlignedBuffer<float> scale_gradient_;
  AlignedBuffer<float> shift_gradient_;
  AlignedBuffer<float> row_factors_;  ///< (N * H * W), of stochastic depth; empty: none
};

/// A step that makes one of BatchNormState's calls, with its operands.
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
using BatchNormRecompute =
    BatchNormStep<&BatchNormState::recompute_forward, BatchNormState::Forward>;
using BatchNormInference = BatchNormStep<&BatchNormState::infer, BatchNormState::Forward>;
using BatchNormBackward = BatchNormStep<&BatchNormState::backward, BatchNormState::Backward>;

}  // namespace lockstep::cpu
