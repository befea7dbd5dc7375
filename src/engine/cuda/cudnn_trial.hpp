#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::cuda {

/// Bytes of what a pass of a convolution reads and writes.
struct TrialBytes {
  std::size_t x = 0;
  std::size_t weights = 0;
  std::size_t y = 0;
  std::size_t workspace = 0;
};
struct TrialMemory {
  void* x;
  void* weights;
  void* y;
  void* workspace;
};
/// Queues a run of the candidate; Error where it cannot.
using RunCandidate = std::function<void(std::int64_t candidate, const TrialMemory& memory)>;

/// The one of `candidates` whose median run is shortest on the device; the first where there is no
/// memory to try them in. One that fails is left out; the last one's Error where all do.
[[nodiscard]] std::int64_t fastest(const std::vector<std::int64_t>& candidates,
                                   const TrialBytes& bytes, cudaStream_t stream,
                                   const RunCandidate& run);

}  // namespace lockstep::cuda
