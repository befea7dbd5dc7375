#pragma once

#include "lockstep/core/precision.hpp"
#include "lockstep/engine/convolution_choices.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"

#include <memory>

namespace lockstep {

struct CpuEngineOptions {
  int threads = 0;            ///< OpenMP threads; 0: omp_get_max_threads()
  std::size_t tail_size = 0;  ///< values after the gradients
  Precision precision = Precision::fp32;
  /// Where given, batch norms take statistics, and their gradients, over all ranks' samples, by one
  /// call each in forward and backward; all ranks must then run the same programs in step.
  SumOverRanks sum_over_ranks = {};
  /// In fp32. Error(usage) where the library has not got a chosen algorithm on this processor; for
  /// a batch size for which alone it has not, a program computes directly.
  ConvolutionChoices convolutions = {};
  /// Backward computes outputs of batch norms and of additions again rather than have them kept:
  /// the same bits, in a pass over memory, and about a third less of it.
  bool recompute = true;
  UnitOptions units = {};  ///< where less than all is held, set_exchange() before compiling
};

/// The oneDNN engine, in fp32 or bf16. The parameters start as zeros. Error(usage) for a precision
/// that oneDNN does not compute in on this processor.
[[nodiscard]] std::unique_ptr<Engine> make_cpu_engine(const Graph& graph,
                                                      const CpuEngineOptions& options);

}  // namespace lockstep
