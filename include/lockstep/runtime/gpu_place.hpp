#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The place of a GPU in its node, from hwloc.
struct GpuPlace {
  enum class Nic {
    none,         ///< the node has none, or it is not known where it is
    far,          ///< elsewhere in the node
    same_cores,   ///< near the same cores
    same_switch,  ///< below the same PCIe bridge or switch
  };
  std::string bus_id = {};
  std::vector<int> near_cores = {};  ///< ascending; empty: not known
  bool has_far_cores = false;        ///< the node's cores belong to several NUMA nodes
  Nic nic = Nic::none;               ///< how close the closest network interfaces are
  std::vector<std::string> nics =
      {};  ///< their names: "mlx5_0"; Ethernet's only if there are no others
};

/// Looks up GPUs by PCI bus id ("0000:0a:00.0"), in this order. Takes some tens of ms. Empty places
/// if the node cannot be examined. If the environment variable HWLOC_XMLFILE names a file of
/// lstopo, hwloc examines the node in it instead.
[[nodiscard]] std::vector<GpuPlace> find_gpus(std::span<const std::string> bus_ids);

/// Cores for the threads that feed a GPU.
struct FeedingCores {
  std::vector<int> cores = {};  ///< of those allowed, the ones near the GPU; if there are none, all
  std::string text = {};  ///< "on 32 of 64 cores, those near GPU 0000:0a:00.0"; empty: no choice
  bool far = false;       ///< no allowed core is near, or it is not known: deserves a warning
};
[[nodiscard]] FeedingCores choose_feeding_cores(const GpuPlace& place,
                                                std::span<const int> allowed);

}  // namespace lockstep
