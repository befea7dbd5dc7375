#pragma once

#include "lockstep/comm/communicator.hpp"

#include <optional>
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
    same_switch,  ///< below the same PCIe switch
  };
  std::string bus_id = {};
  std::vector<int> near_cores = {};  ///< ascending; empty: not known
  bool has_far_cores = false;        ///< the node's cores belong to several NUMA nodes
  Nic nic = Nic::none;               ///< how close the nearest network interfaces are
  /// Names of these interfaces: "mlx5_0". Ethernet counts only if there is nothing faster.
  std::vector<std::string> nics = {};
};

/// Looks up GPUs by PCI bus id ("0000:0a:00.0"), in this order. Takes some tens of ms. The places
/// are empty if the node cannot be examined. If the environment variable HWLOC_XMLFILE names a file
/// of lstopo, hwloc examines the node in it instead.
[[nodiscard]] std::vector<GpuPlace> find_gpus(std::span<const std::string> bus_ids);

/// Cores for the threads that feed a GPU.
struct FeedingCores {
  std::vector<int> cores = {};  ///< of those allowed, the ones near the GPU; if there are none, all
  std::string text = {};        ///< "on 32 of 64 cores, those near GPU 0000:0a:00.0"; empty: on all
  std::optional<std::string> warning = {};  ///< if no allowed core is near, or it is not known
};
/// Pure. `allowed` is ascending.
[[nodiscard]] FeedingCores choose_feeding_cores(const GpuPlace& place,
                                                std::span<const int> allowed);

/// Collective. Restricts the calling thread to the cores that choose_feeding_cores() chooses for
/// this rank's GPU. `warning` names the first rank that has one, on all ranks.
[[nodiscard]] FeedingCores bind_near_gpu(const std::string& bus_id, std::span<const int> allowed,
                                         Communicator& comm);

}  // namespace lockstep
