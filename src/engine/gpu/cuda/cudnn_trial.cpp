#include "cudnn_trial.hpp"

#include "cuda_event.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>

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

/// Times runs on the device. A run queued before the timed ones keeps the stream busy while the
/// host queues these, so that their times do not include the host's.
class RunTimer final {
 public:
  RunTimer(cudaStream_t stream, const std::function<void()>& run) : stream_(stream), run_(run) {
    for (UniqueEvent& mark : marks_) mark = make_cuda_event(cudaEventDefault);
  }
  /// Fills `ms`, of at most `most` runs.
  void time(std::span<float> ms) {
    run_();
    mark(0);
    for (std::size_t i = 1; i <= ms.size(); ++i) {
      run_();
      mark(i);
    }
    LOCKSTEP_CUDA_CHECK(cudaEventSynchronize(marks_[ms.size()].get()));
    for (std::size_t i = 0; i < ms.size(); ++i) {
      LOCKSTEP_CUDA_CHECK(cudaEventElapsedTime(&ms[i], marks_[i].get(), marks_[i + 1].get()));
    }
  }
  static constexpr std::size_t most = 4;

 private:
  void mark(std::size_t i) { LOCKSTEP_CUDA_CHECK(cudaEventRecord(marks_[i].get(), stream_)); }

  cudaStream_t stream_;
  const std::function<void()>& run_;
  std::array<UniqueEvent, most + 1> marks_;
};

/// The median of several runs, or the first run that takes longer than `hopeless_ms`.
float median_ms(cudaStream_t stream, float hopeless_ms, const std::function<void()>& run) {
  RunTimer timer(stream, run);
  std::array<float, RunTimer::most + 1> times{};
  timer.time(std::span(times).first(1));
  if (times[0] > hopeless_ms) return times[0];
  timer.time(std::span(times).subspan(1));
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
