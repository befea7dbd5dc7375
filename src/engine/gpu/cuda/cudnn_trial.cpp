#include "cudnn_trial.hpp"

#include "cuda_event.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace lockstep::gpu::cuda {
namespace {

struct MemoryTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle memory) noexcept { (void)cudaFree(memory); }
};
using UniqueMemory = UniqueHandle<MemoryTraits>;
/// Every byte 0x3c: 1.06 in fp16, 0.0115 in bf16 and fp32. Null if there is not enough memory.
UniqueMemory make_operand(std::size_t bytes, cudaStream_t stream) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return {};
  }
  check(status, "cudaMalloc");
  UniqueMemory owner(memory);
  LOCKSTEP_CUDA_CHECK(cudaMemsetAsync(memory, 0x3c, bytes, stream));
  return owner;
}

/// The median of several runs, or the first run that takes longer than `hopeless_ms`.
float median_ms(cudaStream_t stream, float hopeless_ms, const std::function<void()>& run) {
  const UniqueEvent start = make_cuda_event(cudaEventDefault);
  const UniqueEvent stop = make_cuda_event(cudaEventDefault);
  run();
  std::array<float, 5> times{};
  for (float& ms : times) {
    LOCKSTEP_CUDA_CHECK(cudaEventRecord(start.get(), stream));
    run();
    LOCKSTEP_CUDA_CHECK(cudaEventRecord(stop.get(), stream));
    LOCKSTEP_CUDA_CHECK(cudaEventSynchronize(stop.get()));
    LOCKSTEP_CUDA_CHECK(cudaEventElapsedTime(&ms, start.get(), stop.get()));
    if (ms > hopeless_ms) return ms;
  }
  const auto median = times.begin() + times.size() / 2;
  std::nth_element(times.begin(), median, times.end());
  return *median;
}

}  // namespace

std::int64_t fastest(const std::vector<std::int64_t>& candidates, const TrialBytes& bytes,
                     cudaStream_t stream, const RunCandidate& run) {
  const UniqueMemory x = make_operand(bytes.x, stream);
  const UniqueMemory weights = make_operand(bytes.weights, stream);
  const UniqueMemory y = make_operand(bytes.y, stream);
  const UniqueMemory workspace = make_operand(bytes.workspace, stream);
  if (!x || !weights || !y || !workspace) return candidates.front();
  const TrialMemory memory{
      .x = x.get(), .weights = weights.get(), .y = y.get(), .workspace = workspace.get()};

  std::optional<std::int64_t> best;
  float best_ms = 0;
  std::optional<Error> failure;
  for (const std::int64_t candidate : candidates) {
    try {
      const float hopeless_ms = best ? 3 * best_ms : std::numeric_limits<float>::max();
      const float ms = median_ms(stream, hopeless_ms, [&] { run(candidate, memory); });
      if (!best || ms < best_ms) {
        best = candidate;
        best_ms = ms;
      }
    } catch (const Error& error) {
      (void)cudaGetLastError();  // else the runtime's next call would report it
      failure = error;
    }
  }
  if (!best) throw Error(*failure);
  return *best;
}

}  // namespace lockstep::gpu::cuda
