#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Cores for this rank's threads.
struct ThreadBinding {
  int threads = 1;
  std::vector<int>
      cores;  ///< the cores the OpenMP threads are pinned to, one each; empty: none are
  std::vector<int> allowed;  ///< all cores this rank may use: for loader and saver threads
  std::string text;          ///< "2 threads on cores 0-1"
  std::optional<std::string> warning;  ///< one core is all the rank got on a larger node
};

/// What each local rank may run on and how many it was told to use.
struct ThreadRequest {
  std::vector<std::vector<int>> masks;  ///< by local rank: cores of its affinity mask, ascending
  int local_rank = 0;
  int requested = 0;   ///< --threads; 0: the mask's share
  int node_cores = 1;  ///< cores of the node
};

/// Pure: the affinity mask's size divided by the number of local ranks whose masks overlap, at
/// least one; of a shared mask the k-th of those ranks takes the k-th part. Nothing is pinned where
/// there are more threads than cores, or where masks overlap without being equal. An empty mask,
/// which the system did not tell, gives what was requested, or one thread.
[[nodiscard]] ThreadBinding plan_threads(const ThreadRequest& request);

/// plan_threads for this node, then pins the OpenMP threads of the calling thread. Collective.
[[nodiscard]] ThreadBinding bind_threads(const ProcessGrid& grid, Communicator& comm,
                                         int requested);

/// Those of `cores` that belong to a NUMA node, as the system tells it under `nodes`; all of them
/// where none does, or the node (-1) is not known.
[[nodiscard]] std::vector<int> cores_near(int numa_node, std::span<const int> cores,
                                          const std::string& nodes = "/sys/devices/system/node");

/// The cores this process may use, ascending; empty where the system does not say.
[[nodiscard]] std::vector<int> affinity_mask();

/// "0-3,8"
[[nodiscard]] std::string core_list(const std::vector<int>& cores);

/// Lets the calling thread run on these cores; does nothing for none.
void allow_cores(std::span<const int> cores) noexcept;

/// For a thread that must not take time from training: allow_cores(), and yields to other threads.
void become_background_thread(std::span<const int> cores) noexcept;

}  // namespace lockstep
