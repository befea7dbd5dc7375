#include "lockstep/runtime/gpu_place.hpp"

#include "lockstep/comm/first_text.hpp"
#include "lockstep/core/unique_handle.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace lockstep {
namespace {

struct TopologyTraits {
  using Handle = hwloc_topology_t;
  static Handle null() { return nullptr; }
  static void destroy(Handle topology) noexcept { hwloc_topology_destroy(topology); }
};
using Topology = UniqueHandle<TopologyTraits>;

/// This node with its PCI devices and all its cores, also those that this process may not use.
/// Null if hwloc fails.
Topology load_topology() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return {};
  Topology topology(made);
  // These plugins start drivers, which takes seconds; hwloc may not have them.
  for (const char* plugin : {"cuda", "nvml", "opencl", "levelzero", "rsmi", "gl"}) {
    static_cast<void>(
        hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin));
  }
  const bool loaded =
      hwloc_topology_set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
      hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
      hwloc_topology_load(made) == 0;
  return loaded ? std::move(topology) : Topology{};
}

std::vector<int> cores_in(hwloc_const_cpuset_t set) {
  std::vector<int> cores;
  for (int core = hwloc_bitmap_first(set); core >= 0; core = hwloc_bitmap_next(set, core)) {
    cores.push_back(core);
  }
  return cores;
}

/// `object` and its ancestors.
std::vector<hwloc_obj_t> ancestry(hwloc_obj_t object) {
  std::vector<hwloc_obj_t> objects;
  for (; object != nullptr; object = object->parent) objects.push_back(object);
  return objects;
}

/// Of two devices with this closest common ancestor.
GpuPlace::Nic closeness(hwloc_obj_t common, bool has_far_cores) {
  if (common->type == HWLOC_OBJ_BRIDGE) {
    // A host bridge joins all devices of a root complex.
    return common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? GpuPlace::Nic::same_switch
                                                                      : GpuPlace::Nic::same_cores;
  }
  return has_far_cores && common->parent == nullptr ? GpuPlace::Nic::far
                                                    : GpuPlace::Nic::same_cores;
}

/// Whether cores have different NUMA nodes. A GPU's memory may be one more NUMA node of all cores.
bool has_far_cores(hwloc_topology_t topology) {
  const hwloc_const_cpuset_t all = hwloc_get_root_obj(topology)->cpuset;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_iszero(node->cpuset) == 0 && hwloc_bitmap_isequal(node->cpuset, all) == 0) {
      return true;
    }
  }
  return false;
}

/// Sets nic and nics.
void find_nearest_nics(hwloc_topology_t topology, hwloc_obj_t gpu, hwloc_obj_osdev_type_t type,
                       GpuPlace& place) {
  const std::vector<hwloc_obj_t> above = ancestry(gpu);
  std::size_t nearest = above.size();
  for (hwloc_obj_t device = nullptr;
       (device = hwloc_get_next_osdev(topology, device)) != nullptr;) {
    if (device->attr->osdev.type != type) continue;
    const std::vector<hwloc_obj_t> line = ancestry(device);
    const auto common = std::ranges::find_first_of(above, line);
    const auto distance = static_cast<std::size_t>(common - above.begin());
    if (distance < nearest) place.nics.clear();
    nearest = std::min(nearest, distance);
    if (distance == nearest) place.nics.emplace_back(device->name);
  }
  if (!place.nics.empty()) place.nic = closeness(above[nearest], place.has_far_cores);
}

GpuPlace find_gpu(hwloc_topology_t topology, const std::string& bus_id) {
  GpuPlace place{.bus_id = bus_id};
  if (topology == nullptr) return place;
  place.has_far_cores = has_far_cores(topology);
  const hwloc_obj_t gpu = hwloc_get_pcidev_by_busidstring(topology, bus_id.c_str());
  if (gpu == nullptr) return place;
  const hwloc_obj_t host = hwloc_get_non_io_ancestor_obj(topology, gpu);
  // hwloc places devices of unknown locality near all cores.
  if (place.has_far_cores && host->parent == nullptr) return place;
  place.near_cores = cores_in(host->cpuset);
  for (const auto type : {HWLOC_OBJ_OSDEV_OPENFABRICS, HWLOC_OBJ_OSDEV_NETWORK}) {
    if (place.nics.empty()) find_nearest_nics(topology, gpu, type, place);
  }
  return place;
}

std::string named(const std::vector<int>& cores) {
  return fmt::format("core{} {}", cores.size() == 1 ? "" : "s", core_list(cores));
}

}  // namespace

std::vector<GpuPlace> find_gpus(std::span<const std::string> bus_ids) {
  const Topology topology = load_topology();
  std::vector<GpuPlace> places;
  for (const std::string& bus_id : bus_ids) places.push_back(find_gpu(topology.get(), bus_id));
  return places;
}

FeedingCores choose_feeding_cores(const GpuPlace& place, std::span<const int> allowed) {
  FeedingCores feeding{.cores = {allowed.begin(), allowed.end()}};
  if (!place.has_far_cores || allowed.empty()) return feeding;
  if (place.near_cores.empty()) {
    feeding.warning = fmt::format(
        "on all {} cores (hwloc does not know which are near GPU {}; a container or virtual "
        "machine may hide it)",
        allowed.size(), place.bus_id);
    return feeding;
  }
  std::vector<int> near;
  std::ranges::set_intersection(allowed, place.near_cores, std::back_inserter(near));
  if (near.empty()) {
    feeding.warning = fmt::format(
        "on {}, not near GPU {} (near it: {}); each batch crosses from socket to socket; start "
        "with srun --cpu-bind=none or mpirun --bind-to none",
        named(feeding.cores), place.bus_id, named(place.near_cores));
  } else if (near.size() < allowed.size()) {
    feeding.text = fmt::format("on {} of {} cores, those near GPU {}", near.size(), allowed.size(),
                               place.bus_id);
    feeding.cores = std::move(near);
  }
  return feeding;
}

FeedingCores bind_near_gpu(const std::string& bus_id, std::span<const int> allowed,
                           Communicator& comm) {
  FeedingCores feeding = choose_feeding_cores(find_gpus({&bus_id, 1}).front(), allowed);
  if (!feeding.text.empty()) allow_cores(feeding.cores);
  const std::string first = first_text(
      comm,
      feeding.warning ? fmt::format("threads of rank {}: {}", comm.rank(), *feeding.warning) : "");
  feeding.warning.reset();
  if (!first.empty()) feeding.warning = first;
  return feeding;
}

}  // namespace lockstep
