#include "device_array.hpp"
#include "engine/gpu/host_device.hpp"

namespace lockstep::gpu {

Device& kernel_device() {
  static const std::unique_ptr<Device> device =
      make_host_device(HostWork::late, HostMemoryGuard::on);
  return *device;
}
bool kernels_contract() {
  return false;
}

}  // namespace lockstep::gpu
