#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

namespace lockstep::gpu::cuda {

/// Throws Error(internal) with the call's text and the library's name and text of the error.
void check(cudaError_t status, const char* call);
void check(cudnnStatus_t status, const char* call);

}  // namespace lockstep::gpu::cuda

/// Makes a call of the CUDA runtime or of cuDNN, checked.
#define LOCKSTEP_CUDA_CHECK(call) ::lockstep::gpu::cuda::check((call), #call)
