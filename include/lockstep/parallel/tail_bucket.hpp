#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// What follows the gradients in the last bucket; every field is a sum over ranks.
struct StepSums {
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
  double samples = 0;
  int not_finite = 0;     ///< ranks whose loss was NaN or infinite
  int stop_requests = 0;  ///< ranks that were asked to stop
  int save_requests = 0;  ///< ranks that want a checkpoint
  int pieces = 0;         ///< of a state that is saved, which rank 0's writer waits for
  int failed = 0;         ///< ranks with an error, for which all leave at the step's boundary
};

/// Layout of the tail: running statistics first (each layer's batch mean and unbiased variance,
/// weighted so that the sum over ranks is what the running average takes in), then StepSums.
class TailBucket final {
 public:
  explicit TailBucket(const Graph& graph);
  [[nodiscard]] std::size_t size() const noexcept;
  /// Where StepSums::samples and not_finite lie.
  [[nodiscard]] std::size_t samples_at() const noexcept;
  [[nodiscard]] std::size_t not_finite_at() const noexcept;

  /// Before a step's first micro-step.
  void clear(std::span<float> tail) const noexcept;
  /// Folds one micro-step's batch statistics as the running average would: what is there is
  /// multiplied by (1 - momentum), `statistics` are added times momentum * weight; weight = this
  /// rank's samples / all ranks' samples of the micro-step.
  void fold(std::span<float> tail, std::span<const float> statistics, double weight) const noexcept;
  void write_sums(std::span<float> tail, const StepSums& sums) const noexcept;

  /// After the reduction.
  [[nodiscard]] StepSums read_sums(std::span<const float> tail) const noexcept;
  /// running = (1 - momentum)^micro_steps * running + folded.
  void update_running(std::span<const float> tail, int micro_steps,
                      std::span<float> running) const noexcept;

 private:
  struct Range {
    std::size_t begin;
    std::size_t end;
    double momentum;
  };
  std::vector<Range> ranges_;
  std::size_t statistics_ = 0;
};

}  // namespace lockstep
