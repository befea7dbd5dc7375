#pragma once

#include "lockstep/engine/convolution_choices.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

/// One step of a convolution, for a given batch size and number of threads.
struct ConvolutionProblem {
  WinogradShape shape;
  ConvolutionStep step = ConvolutionStep::forward;
  std::int64_t batch_size = 0;
  int threads = 0;    ///< 0: omp_get_max_threads()
  bool bf16 = false;  ///< type of the activations, else fp32
  /// Multiplications and additions of the direct algorithm.
  [[nodiscard]] double operations() const;
};

/// Seconds of one run with each algorithm.
struct ConvolutionTimes {
  double direct = 0;
  double winograd = 0;
  friend bool operator==(const ConvolutionTimes&, const ConvolutionTimes&) = default;
};

/// Scratch memory of Winograd's algorithm besides the tensors; it grows with the number of threads.
[[nodiscard]] std::size_t winograd_scratch_bytes(const ConvolutionProblem& problem);

/// How often another process has preempted a thread of this process.
[[nodiscard]] long preemptions();
/// Runs each algorithm a few times in turn and takes its shortest undisturbed run, including the
/// reorder to its weight format. Takes at most a second or two. `count_preemptions` counts as
/// preemptions() does.
[[nodiscard]] ConvolutionTimes time_convolution(
    const ConvolutionProblem& problem,
    const std::function<long()>& count_preemptions = preemptions);
/// The part of `problem` that a trial runs: as many of its samples as `threads` threads compute in
/// a fraction of a second, at least one.
[[nodiscard]] ConvolutionProblem trial_part(const ConvolutionProblem& problem, int threads);

/// Number of threads of an engine, given the number asked for; 0: omp_get_max_threads().
/// Error(usage) above OpenMP's limit.
[[nodiscard]] int engine_threads(int asked);

/// Whether oneDNN multiplies matrices in bf16 by a unit of its own (AMX).
[[nodiscard]] bool has_matrix_unit();

/// "oneDNN 2.6.3, avx512_core_bf16"
[[nodiscard]] std::string onednn_description();

}  // namespace lockstep
