#pragma once

#include "lockstep/engine/convolution_choices.hpp"

#include <cstdint>
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
/// Each algorithm run a few times in turn, and its shortest run that nothing else disturbed. Empty
/// where Winograd's is not to be had for this batch.
[[nodiscard]] std::optional<ConvolutionTimes> time_convolution(const ConvolutionProblem& problem);

/// Threads of an engine that is asked for so many; 0: omp_get_max_threads().
[[nodiscard]] int engine_threads(int asked);

/// "oneDNN 2.6.3, avx512_core_bf16"
[[nodiscard]] std::string onednn_description();

}  // namespace lockstep
