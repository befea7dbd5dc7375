#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

struct SharedMemoryOptions {
  /// Of memory that all ranks see, for each of them, whole pages; 0: as many as their caches
  /// hold together. Tests make it small.
  std::size_t bytes = 0;
};

struct SharedMemoryResult {
  /// Null where not all ranks see the same memory, or it cannot be had.
  std::unique_ptr<Communicator> communicator;
  std::string reason;  ///< why there is none
};

/// Sums of floating point, reduce-scatters of them, and all-gathers go through memory that all
/// ranks of `inner` see, as they do on one host; everything else goes to `inner`, which outlives
/// it. Values are added in the order of the ranks, so that each has the same sum wherever it lies
/// in a message, and sums of 16-bit types are rounded once. A rank moves what it takes part in
/// while it tests or waits, in the thread that made this, which also ends it. Collective over the
/// ranks of `inner`; with the same result on all.
[[nodiscard]] SharedMemoryResult make_shared_memory_communicator(Communicator& inner,
                                                                 SharedMemoryOptions options = {});

}  // namespace lockstep
