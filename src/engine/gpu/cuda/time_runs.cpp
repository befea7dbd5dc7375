#include "time_runs.hpp"

#include "cuda_handles.hpp"

#include <chrono>
#include <cstddef>

namespace lockstep::gpu::cuda {
namespace {

/// Keeps its stream busy while the host launches the work that is timed after it.
void hold_stream(void*) {
  constexpr std::chrono::microseconds longest_launch{200};
  const auto end = std::chrono::steady_clock::now() + longest_launch;
  while (std::chrono::steady_clock::now() < end) {
  }
}

UniqueEvent mark(cudaStream_t stream) {
  UniqueEvent event = make_cuda_event(cudaEventDefault);
  LOCKSTEP_CUDA_CHECK(cudaEventRecord(event.get(), stream));
  return event;
}

}  // namespace

std::vector<double> time_runs(cudaStream_t stream, int runs, const std::function<void()>& work) {
  // An idle stream would record the first mark at once and count the time until the first launch.
  LOCKSTEP_CUDA_CHECK(cudaLaunchHostFunc(stream, hold_stream, nullptr));
  std::vector<UniqueEvent> marks;
  marks.reserve(static_cast<std::size_t>(runs) + 1);
  marks.push_back(mark(stream));
  for (int run = 0; run < runs; ++run) {
    work();
    marks.push_back(mark(stream));
  }
  LOCKSTEP_CUDA_CHECK(cudaGetLastError());  // of a launch that failed
  LOCKSTEP_CUDA_CHECK(cudaEventSynchronize(marks.back().get()));
  std::vector<double> seconds;
  seconds.reserve(marks.size() - 1);
  for (std::size_t i = 1; i < marks.size(); ++i) {
    float ms = 0;
    LOCKSTEP_CUDA_CHECK(cudaEventElapsedTime(&ms, marks[i - 1].get(), marks[i].get()));
    seconds.push_back(static_cast<double>(ms) * 1e-3);
  }
  return seconds;
}

}  // namespace lockstep::gpu::cuda
