#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Threads of this rank and their cores.
struct ThreadBinding {
  int threads = 1;
  std::vector<int> cores;  ///< one core per OpenMP thread, to which it is pinned; empty: no pinning
  std::vector<int> allowed;  ///< all cores this rank may use: for loader and saver threads
  int share = 1;             ///< number of those, divided by the ranks that may use them
  std::string text;          ///< "2 threads on cores 0-1"
  std::optional<std::string> warning;  ///< if the rank got only one core of a larger node
};

/// Inputs of plan_threads().
struct ThreadRequest {
  std::vector<std::vector<int>> masks;  ///< affinity masks by local rank: ascending cores
  int local_rank = 0;
  int requested = 0;   ///< --threads; 0: the mask's share
  int node_cores = 1;  ///< cores of the node
};

/// Pure. A rank's share is the size of its affinity mask divided by the number of local ranks with
/// overlapping masks, at least one core; the k-th of these ranks takes the k-th part. Does not pin
/// if there are more threads than cores in the share, if masks overlap without being equal, or if
/// the share has more cores than threads and is of all cores of the node, which other programs may
/// use. An empty mask means unknown: uses the requested number of threads, or one.
[[nodiscard]] ThreadBinding plan_threads(const ThreadRequest& request);

/// Collective. Calls plan_threads for this node and pins the calling thread's OpenMP threads.
[[nodiscard]] ThreadBinding bind_threads(const ProcessGrid& grid, Communicator& comm,
                                         int requested);

/// The cores that this process may use, ascending; empty if unknown.
[[nodiscard]] std::vector<int> affinity_mask();

/// "0-3,8"
[[nodiscard]] std::string core_list(const std::vector<int>& cores);

/// Restricts the calling thread to these cores; does nothing if `cores` is empty.
void allow_cores(std::span<const int> cores) noexcept;

/// For threads that need a core only now and then, on any of these: calls allow_cores(), and leaves
/// signals to the main thread.
void become_helper_thread(std::span<const int> cores) noexcept;

/// For threads that must not slow down training: as become_helper_thread(), and lowers the
/// priority.
void become_background_thread(std::span<const int> cores) noexcept;

}  // namespace lockstep
