#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

namespace lockstep::gpu::cuda {

/// Queues `work` in the stream `runs` times in a row, and waits; returns the seconds that the
/// device took for each. The stream is held while the host queues the first runs, so that their
/// times do not include the host's.
[[nodiscard]] std::vector<double> time_runs(cudaStream_t stream, int runs,
                                            const std::function<void()>& work);

}  // namespace lockstep::gpu::cuda
