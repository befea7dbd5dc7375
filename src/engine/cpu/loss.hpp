#pragma once

#include "../lowering/program.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/program.hpp"

#include <cstdint>
#include <span>

namespace lockstep::cpu {

/// The loss of a program. Keeps the values of the last forward that backward needs.
class Loss final {
 public:
  Loss(const GraphLoss& loss, std::int64_t batch_size);

  /// Keeps the logits (N, K) for backward; computes each sample's loss and prediction below
  /// `samples`.
  void forward(const float* logits, const Targets& targets, std::int64_t samples);
  /// Writes d(scale * sum of losses) / d(logits), (N, K).
  void backward(float scale, float* gradient) const;

  /// Sums over the last forward's samples, always in the same order.
  [[nodiscard]] BatchMetrics metrics() const noexcept;
  [[nodiscard]] std::span<const float> logits() const noexcept { return logits_.span(); }

 private:
  template <typename Terms>
  void forward_sample(const Terms& terms, std::int64_t sample);
  template <typename Terms>
  void backward_sample(const Terms& terms, std::int64_t sample, float scale, float* out) const;
  [[nodiscard]] LossRow row_of(std::int64_t sample) const;

  GraphLoss loss_;
  std::int64_t samples_ = 0;
  AlignedBuffer<float> logits_;            // (N, K)
  AlignedBuffer<SampleTarget> targets_;    // (N,)
  AlignedBuffer<double> kept_;             // (N,) as LossTerms
  AlignedBuffer<double> losses_;           // (N,)
  AlignedBuffer<Prediction> predictions_;  // (N,)
};

}  // namespace lockstep::cpu
