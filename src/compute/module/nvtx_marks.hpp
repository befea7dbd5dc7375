#pragma once

#include "lockstep/runtime/phase_marks.hpp"

namespace lockstep::cuda {

/// As ranges and marks of NVTX in a domain "lockstep", which Nsight shows; there as long as the
/// process.
[[nodiscard]] PhaseMarks& nvtx_marks();

}  // namespace lockstep::cuda
