#pragma once

#include "check.hpp"
#include "lockstep/core/unique_handle.hpp"

namespace lockstep::gpu::cuda {

struct EventTraits {
  using Handle = cudaEvent_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle event) noexcept { (void)cudaEventDestroy(event); }
};
using UniqueEvent = UniqueHandle<EventTraits>;

[[nodiscard]] inline UniqueEvent make_cuda_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
  return UniqueEvent(event);
}

}  // namespace lockstep::gpu::cuda
