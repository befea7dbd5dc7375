#pragma once

#include "lockstep/compute/trial_cache.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/precision.hpp"
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
  int threads = 0;              ///< per rank; 0: omp_get_max_threads()
  std::int64_t batch_size = 0;  ///< batch size of the trials; 0: nothing is timed
  std::string known = {};       ///< ConvolutionChoices::text() of the resumed run; stays in force
};

/// Cost and times of Winograd's algorithm.
struct ConvolutionTrial {
  std::size_t scratch_bytes = 0;                         ///< of Winograd's algorithm
  std::optional<ConvolutionTimes> times = std::nullopt;  ///< empty if that is too much memory
};

/// The CPU engine's algorithms for a network's convolutions, and the trials behind them.
struct ConvolutionPlan {
  ConvolutionChoices choices;
  std::map<std::pair<WinogradShape, ConvolutionStep>, ConvolutionTrial> trials;
};

/// What planning measures; tests substitute their own.
struct ConvolutionLibrary {
  std::function<std::size_t(const ConvolutionProblem&)> winograd_scratch_bytes =
      lockstep::winograd_scratch_bytes;
  std::function<ConvolutionTimes(const ConvolutionProblem&)> time =
      [](const ConvolutionProblem& problem) { return time_convolution(problem); };
  std::function<bool()> has_matrix_unit = lockstep::has_matrix_unit;
};

/// Winograd's algorithm calculates in fp32, also if a network's values are in bf16.
/// auto: `known` stays in force. Otherwise Winograd's algorithm where it is clearly faster; direct
/// convolution for steps too small for a trial, if Winograd's scratch memory is large compared with
/// the network's values, or in bf16 on processors with AMX. winograd: for every shape that it can
/// compute; Error(usage) if there is none, or in another precision than fp32 and bf16.
[[nodiscard]] ConvolutionPlan plan_convolutions(const Graph& graph,
                                                const ConvolutionPlanOptions& options,
                                                TrialCache& cache,
                                                const ConvolutionLibrary& library = {});

}  // namespace lockstep
