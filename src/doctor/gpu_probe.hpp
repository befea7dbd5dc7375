#pragma once

#include "../compute/module_interface.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace lockstep::doctor {

/// This rank's GPU, opened to measure an all-reduce over the GPUs of all ranks.
class GpuProbe final {
 public:
  /// Throws an Error if the GPU is unusable. Not collective: a hanging driver blocks only one rank.
  GpuProbe(int local_rank, int local_size);

  [[nodiscard]] std::string uuid() const { return module_.identify(*device_).uuid; }
  /// Returns NcclFacts::bandwidth. Collective over MPI_COMM_WORLD. Throws Error(internal) if any
  /// NCCL operation takes longer than `limit`.
  [[nodiscard]] double measure(std::chrono::duration<double> limit);

 private:
  const gpu::ModuleTable& module_;
  std::shared_ptr<gpu::Device> device_;
  gpu::DeviceArray<float> values_;
};

}  // namespace lockstep::doctor
