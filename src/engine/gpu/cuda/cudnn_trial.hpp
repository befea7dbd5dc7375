#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::gpu::cuda {

/// Sizes of the operands of a convolution's pass.
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
/// Queues a run of the candidate; Error if it cannot run.
using RunCandidate = std::function<void(std::int64_t candidate, const TrialMemory& memory)>;

/// The candidate with the shortest median run on the device; the first if there is not enough
/// memory to try them. Skips candidates that fail; throws the last one's Error if all fail.
[[nodiscard]] std::int64_t fastest(const std::vector<std::int64_t>& candidates,
                                   const TrialBytes& bytes, cudaStream_t stream,
                                   const RunCandidate& run);

}  // namespace lockstep::gpu::cuda
