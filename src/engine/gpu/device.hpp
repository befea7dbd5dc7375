#pragma once

#include "convolution_library.hpp"
#include "device_allocator.hpp"
#include "device_queues.hpp"
#include "jpeg_library.hpp"

#include <string>

namespace lockstep::gpu {

/// One device: its memory and its queues, which all that computes uses, and its libraries, which
/// live as long as the device. CudaDevice drives a GPU; tests use a device that runs on the host.
class Device : public DeviceAllocator, public DeviceQueues {
 public:
  /// "NVIDIA H200, 132 SMs, 139 GiB, bus 0000:0a:00.0, CUDA 13.0, cuDNN 9.19"
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual ConvolutionLibrary& convolutions() = 0;
  /// Error(usage) if images cannot be decoded on the device.
  [[nodiscard]] virtual JpegLibrary& jpeg_library() = 0;
};

}  // namespace lockstep::gpu
