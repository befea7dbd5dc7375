#pragma once

#include "check.hpp"
#include "lockstep/core/unique_handle.hpp"

namespace lockstep::gpu::cuda {

template <typename T, auto Release>
struct HandleTraits {
  using Handle = T;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { (void)Release(handle); }
};
using UniqueStream = UniqueHandle<HandleTraits<cudaStream_t, &cudaStreamDestroy>>;
using UniqueEvent = UniqueHandle<HandleTraits<cudaEvent_t, &cudaEventDestroy>>;
using UniqueGraph = UniqueHandle<HandleTraits<cudaGraph_t, &cudaGraphDestroy>>;
using UniqueGraphExec = UniqueHandle<HandleTraits<cudaGraphExec_t, &cudaGraphExecDestroy>>;
using UniqueMemory = UniqueHandle<HandleTraits<void*, &cudaFree>>;
using UniqueCudnn = UniqueHandle<HandleTraits<cudnnHandle_t, &cudnnDestroy>>;

[[nodiscard]] inline UniqueEvent make_cuda_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
  return UniqueEvent(event);
}

}  // namespace lockstep::gpu::cuda
