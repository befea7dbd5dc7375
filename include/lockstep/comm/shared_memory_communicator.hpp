#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

struct SharedMemoryOptions {
  /// Size of each rank's window in shared memory, in whole pages; 0: window_bytes(), which fits the
  /// caches. Tests use small values.
  std::size_t bytes = 0;
};

struct SharedMemoryResult {
  /// Null if the ranks cannot share memory or it cannot be allocated.
  std::unique_ptr<Communicator> communicator;
  std::string reason;  ///< why `communicator` is null
};

/// Makes a communicator that runs all-gathers, and summing all-reduces and reduce-scatters of fp32,
/// bf16 and fp16, through memory shared by all ranks of `inner` on one host. Everything else goes
/// to `inner`, which must outlive it. Values are added in rank order, so a sum does not depend on
/// its position in a message; sums of 16-bit types are rounded once. Requests progress only in
/// test() and wait(), on the thread that made the communicator and must destroy it. Collective over
/// the ranks of `inner`; all ranks get the same result. A split allocates memory of its own; if it
/// cannot for some part, it throws Error(internal) on all ranks.
[[nodiscard]] SharedMemoryResult make_shared_memory_communicator(Communicator& inner,
                                                                 SharedMemoryOptions options = {});

}  // namespace lockstep
