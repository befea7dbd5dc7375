#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/metrics.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Step metrics and requests at the end of the tail; every field is a sum over ranks.
struct StepSums {
  double loss = 0;
  MetricValues metrics = {};  ///< those of training
  double samples = 0;
  int not_finite = 0;     ///< ranks whose loss was NaN or infinite
  int stop_requests = 0;  ///< ranks that request a stop
  int save_requests = 0;  ///< ranks that request a checkpoint
  int failed = 0;         ///< ranks with an error; if any, all ranks exit at the step's boundary
};

/// Layout of the tail: batch statistics (each layer's batch mean and unbiased variance, weighted
/// so that their sum over ranks is the term added to the running average), then StepSums.
class TailBucket final {
 public:
  explicit TailBucket(const Graph& graph);
  [[nodiscard]] std::size_t size() const noexcept;
  /// Offsets of StepSums::samples and not_finite.
  [[nodiscard]] std::size_t samples_at() const noexcept;
  [[nodiscard]] std::size_t not_finite_at() const noexcept;

  /// Call before a step's first micro-step.
  void clear(std::span<float> tail) const noexcept;
  /// Folds in one micro-step's batch statistics as the running average would:
  /// tail = (1 - momentum) * tail + momentum * weight * statistics, where weight = this rank's
  /// samples / all ranks' samples of the micro-step.
  void fold(std::span<float> tail, std::span<const float> statistics, double weight) const noexcept;
  void write_sums(std::span<float> tail, const StepSums& sums) const noexcept;

  /// Call after the reduction.
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
