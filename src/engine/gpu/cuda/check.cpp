#include "check.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::gpu::cuda {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  // Clears an error of this call alone; a broken device keeps failing.
  (void)cudaGetLastError();
  fail(ExitStatus::internal, "{} failed ({}: {}); look for earlier errors of this rank", call,
       cudaGetErrorName(status), cudaGetErrorString(status));
}

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char text[512] = "";
  cudnnGetLastErrorString(text, sizeof text);
  fail(ExitStatus::internal, "{} failed ({}: {}); look for earlier errors of this rank", call,
       cudnnGetErrorString(status), text);
}

}  // namespace lockstep::gpu::cuda
