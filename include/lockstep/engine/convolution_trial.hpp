#pragma once

#include "lockstep/engine/convolution_choices.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

/// One step of a convolution in fp32, for a batch and so many threads.
struct ConvolutionProblem {
  WinogradShape shape;
  ConvolutionStep step = ConvolutionStep::forward;
  std::int64_t batch_size = 0;
  int threads = 0;  ///< 0: omp_get_max_threads()
  /// Multiplications and additions of the direct algorithm.
  [[nodiscard]] double operations() const;
};

/// Seconds of a run by each algorithm.
struct ConvolutionTimes {
  double direct = 0;
  double winograd = 0;
  friend bool operator==(const ConvolutionTimes&, const ConvolutionTimes&) = default;
};

/// Whether oneDNN has Winograd's algorithm for it on this processor, for the batch that an engine
/// chooses its layouts for.
[[nodiscard]] bool has_winograd(const WinogradShape& shape, ConvolutionStep step);
/// Memory that Winograd's algorithm takes beside the tensors; the more threads, the more. Empty
/// where it is not to be had for this batch.
[[nodiscard]] std::optional<std::size_t> winograd_scratch_bytes(const ConvolutionProblem& problem);

/// How often another process has taken a core from a thread of this one.
[[nodiscard]] long preemptions();
/// Each algorithm run a few times in turn, and its shortest run that nothing else disturbed, with
/// the reorder that its format of the weights costs. A second or two at most; `count_preemptions`:
/// as preemptions().
[[nodiscard]] ConvolutionTimes time_convolution(
    const ConvolutionProblem& problem,
    const std::function<long()>& count_preemptions = preemptions);
/// What is run of it for that: as many of its samples as so many threads compute in a fraction of a
/// second, and one at least.
[[nodiscard]] ConvolutionProblem trial_part(const ConvolutionProblem& problem, int threads);

/// Threads of an engine that is asked for so many; 0: omp_get_max_threads().
[[nodiscard]] int engine_threads(int asked);

/// "oneDNN 2.6.3, avx512_core_bf16"
[[nodiscard]] std::string onednn_description();

}  // namespace lockstep
