#pragma once

#include "../compute/module_interface.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace lockstep::doctor {

/// This rank's GPU, opened for an all-reduce over those of all ranks.
class GpuProbe final {
 public:
  /// Error where it cannot be used. Alone: a driver that hangs here holds up no other rank.
  GpuProbe(int local_rank, int local_size);

  [[nodiscard]] std::string uuid() const { return module_.identify(*device_).uuid; }
  /// Bytes a second, as NcclFacts has them. Collective over MPI_COMM_WORLD; of what NCCL does,
  /// nothing takes longer than `limit`: Error(internal).
  [[nodiscard]] double measure(std::chrono::duration<double> limit);

 private:
  const cuda::ModuleTable& module_;
  std::shared_ptr<cuda::Device> device_;
  cuda::DeviceArray<float> values_;
};

}  // namespace lockstep::doctor
