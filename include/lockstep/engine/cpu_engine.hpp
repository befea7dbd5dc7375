#pragma once

#include "lockstep/engine/engine.hpp"

#include <memory>

namespace lockstep {

struct CpuEngineOptions {
  int threads = 0;            ///< OpenMP threads; 0: omp_get_max_threads()
  std::size_t tail_size = 0;  ///< values after the gradients
};

/// The oneDNN engine, fp32. The parameters start as zeros.
[[nodiscard]] std::unique_ptr<Engine> make_cpu_engine(const Graph& graph,
                                                      const CpuEngineOptions& options);

}  // namespace lockstep
