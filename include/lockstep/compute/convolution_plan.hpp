#pragma once

#include "lockstep/compute/trial_cache.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/engine/convolution_trial.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

struct ConvolutionPlanOptions {
  ConvAlgorithm algorithm = ConvAlgorithm::automatic;
  Precision precision = Precision::fp32;
  int threads = 0;              ///< of a rank; 0: omp_get_max_threads()
  std::int64_t batch_size = 0;  ///< to time at; 0: nothing is timed
  std::string known = {};       ///< ConvolutionChoices::text() of a run that goes on, which holds
};

/// What speaks for and against Winograd's algorithm.
struct ConvolutionTrial {
  std::size_t scratch_bytes = 0;                         ///< that it takes
  std::optional<ConvolutionTimes> times = std::nullopt;  ///< empty where that is too much
};

/// What the processor's engine is to compute a network's convolutions by, and what was tried for
/// it.
struct ConvolutionPlan {
  ConvolutionChoices choices;
  std::map<std::pair<WinogradShape, ConvolutionStep>, ConvolutionTrial> trials;
};

/// What the plan asks of the library; tests give their own answers.
struct ConvolutionLibrary {
  std::function<bool(const WinogradShape&, ConvolutionStep)> has_winograd = lockstep::has_winograd;
  std::function<std::optional<std::size_t>(const ConvolutionProblem&)> winograd_scratch_bytes =
      lockstep::winograd_scratch_bytes;
  std::function<ConvolutionTimes(const ConvolutionProblem&)> time =
      [](const ConvolutionProblem& problem) { return time_convolution(problem); };
};

/// auto: what is known holds, whatever this processor has; else Winograd's algorithm where its time
/// is clearly shorter, and direct convolution for steps too small to be worth a trial, or where
/// Winograd's scratch memory is large beside the network's values. winograd: wherever the library
/// has it; Error(usage) where that is nowhere, or not in this precision.
[[nodiscard]] ConvolutionPlan plan_convolutions(const Graph& graph,
                                                const ConvolutionPlanOptions& options,
                                                TrialCache& cache,
                                                const ConvolutionLibrary& library = {});

}  // namespace lockstep
