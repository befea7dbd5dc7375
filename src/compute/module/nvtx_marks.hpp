#pragma once

#include "lockstep/runtime/phase_marks.hpp"

namespace lockstep::gpu::cuda {

/// Writes NVTX ranges and marks in the domain "lockstep", which Nsight shows. Lives as long as the
/// process.
[[nodiscard]] PhaseMarks& nvtx_marks();

}  // namespace lockstep::gpu::cuda
