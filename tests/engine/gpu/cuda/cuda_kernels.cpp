#include "engine/gpu/cuda/cuda_device.hpp"
#include "engine/gpu/kernels/device_array.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lockstep::gpu {
namespace {

struct NeedsGpu {
  NeedsGpu() {
    int visible = 0;
    if (cudaGetDeviceCount(&visible) == cudaSuccess && visible > 0) return;
    std::fprintf(stderr, "skipped: no usable GPU on this host\n");
    std::_Exit(77);
  }
  NeedsGpu(const NeedsGpu&) = delete;
  NeedsGpu& operator=(const NeedsGpu&) = delete;
  // Before the CUDA runtime unloads.
  ~NeedsGpu() { device().reset(); }
  static std::unique_ptr<Device>& device() {
    static std::unique_ptr<Device> instance;
    return instance;
  }
};
BOOST_TEST_GLOBAL_FIXTURE(NeedsGpu);

}  // namespace

Device& kernel_device() {
  auto& device = NeedsGpu::device();
  if (device == nullptr) device = std::make_unique<cuda::CudaDevice>(DeviceOptions{});
  return *device;
}
bool kernels_contract() {
  return true;
}

}  // namespace lockstep::gpu
