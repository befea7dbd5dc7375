#pragma once

#include "../jpeg_library.hpp"

#include <memory>

namespace lockstep::gpu::cuda {

/// Loads nvJPEG of CUDA's major version, which stays loaded until the process ends. Builds need
/// neither its header nor the library. Work is done on `device`, by whichever thread. Error(usage)
/// if it is not found.
[[nodiscard]] std::unique_ptr<JpegLibrary> load_nvjpeg(int device);

}  // namespace lockstep::gpu::cuda
