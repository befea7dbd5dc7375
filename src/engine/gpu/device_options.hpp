#pragma once

#include "gpu_class.hpp"

#include <cstddef>
#include <string>

namespace lockstep::gpu {

/// How a convolution's algorithm is chosen.
struct PlanOptions {
  /// Algorithms that need a larger workspace are used only if no other computes the pass. In fp32
  /// with a batch of 256, the faster ones of ResNet-50 need 1,176 MiB and of ResNeXt-50 1,568 MiB.
  std::size_t max_workspace_bytes = std::size_t{1} << 31;
  /// Only algorithms that give the same bits in every run.
  bool deterministic = false;
  /// How many of the library's preferred algorithms are timed to find the fastest; below 2: none,
  /// and the library's first choice is used.
  int timed_candidates = 0;
  /// Passes with fewer operations are too short to be timed.
  double smallest_trial = 1e8;
};

struct DeviceOptions {
  int local_rank = 0;  ///< this rank's index on its host
  int local_size = 1;  ///< ranks on this host
  PlanOptions plans;
  /// allocate_exchanged() takes memory from NCCL's allocator.
  bool exchanges_by_nccl = false;
};

/// An allocator.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Null if there is not enough memory.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
};

/// Identity of a GPU.
struct DeviceIdentity {
  std::string uuid;    ///< "GPU-" and 32 hexadecimal digits in groups, as nvidia-smi -L prints it
  std::string bus_id;  ///< "0000:0a:00.0"
  GpuClass gpu = GpuClass::sm_90;
};

}  // namespace lockstep::gpu
