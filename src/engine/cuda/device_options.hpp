#pragma once

#include <cstddef>
#include <string>

namespace lockstep::cuda {

/// How an algorithm for a convolution is chosen.
struct PlanOptions {
  /// Algorithms that need more memory for themselves are taken only where no other computes it.
  /// ResNet-50 in fp32 with a batch of 256 needs 1,176 MiB for its faster ones.
  std::size_t max_workspace_bytes = std::size_t{3} << 29;
  /// Only algorithms that give the same bits in every run.
  bool deterministic = false;
  /// So many of the algorithms that the library prefers are timed where the fastest is asked for;
  /// below 2: none, the library's first is taken.
  int timed_candidates = 0;
  /// Operations of a pass below which it takes too short for that.
  double smallest_trial = 1e8;
  /// Weight gradients of 16-bit values in fp32 where the library can write them: one rounding less,
  /// by engines that may be slower.
  bool wide_weight_gradients = true;
};

struct DeviceOptions {
  int local_rank = 0;  ///< this rank's place among those of its host
  int local_size = 1;  ///< ranks on this host
  PlanOptions plans;
  /// What it exchanges lies in memory of NCCL's kind.
  bool exchanges_by_nccl = false;
};

/// Where memory comes from.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Null where there is not as much.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
};

/// What tells one GPU from another.
struct DeviceIdentity {
  std::string uuid;    ///< "GPU-" and 32 hexadecimal digits in groups, as nvidia-smi -L prints it
  std::string bus_id;  ///< "0000:0a:00.0"
  int numa_node = -1;  ///< the host's memory it is closest to; -1: not known
};

}  // namespace lockstep::cuda
