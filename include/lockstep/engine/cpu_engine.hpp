#pragma once

#include "lockstep/core/precision.hpp"
#include "lockstep/core/recompute.hpp"
#include "lockstep/engine/convolution_choices.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"
#include "lockstep/step/step_graph.hpp"

#include <memory>

namespace lockstep {

struct CpuEngineOptions {
  int threads = 0;            ///< OpenMP threads; 0: omp_get_max_threads()
  std::size_t tail_size = 0;  ///< values after the gradients
  Precision precision = Precision::fp32;
  /// If set, batch norms compute statistics and gradients over all ranks' samples, with one call
  /// per norm in forward and in backward. All ranks must then run the same programs in step.
  SumOverRanks sum_over_ranks = {};
  /// For fp32 only. Error(usage) if the library lacks a chosen algorithm on this processor. If it
  /// lacks the algorithm only for one batch size, programs of that size compute directly.
  ConvolutionChoices convolutions = {};
  /// The same bits in less memory: with norms, for another pass over memory, about a third less.
  Recompute recompute = Recompute::automatic;
  UnitOptions units = {};  ///< of a sharded layout
};

/// What the engine fuses.
inline constexpr Fusions cpu_fusions{.relu_takes_sums = true};

/// Whether the engine computes in this precision on this processor: bf16 needs AVX-512.
[[nodiscard]] bool cpu_computes_in(Precision precision);

/// The oneDNN engine, in fp32 or bf16. Parameters start as zeros. Error(usage) for a precision in
/// which it does not compute.
[[nodiscard]] std::unique_ptr<Engine> make_cpu_engine(const Graph& graph,
                                                      const CpuEngineOptions& options);

}  // namespace lockstep
