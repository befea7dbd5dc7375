#include "hybrid_groups.hpp"

namespace lockstep {

HybridComms hybrid_groups(Compute& compute, RunWatch* watch) {
  using Callers = RunWatch::Callers;
  const auto watched = [&](Communicator* comm, const char* name, Callers callers = Callers::all) {
    return comm == nullptr || watch == nullptr ? comm : &watch->watched(*comm, name, callers);
  };
  const Compute::Groups host = compute.host_group_communicators();
  if (host.group != nullptr && watch != nullptr) watch->compare_in_groups(host.group->size());
  const Compute::Groups device = compute.group_communicators();
  // Saves gather only in the first group.
  HybridComms comms{.group_host = watched(host.group, "the group's", Callers::group),
                    .replicas_host = watched(host.replicas, "the replicas'")};
  const bool is_host = device.group == host.group;
  comms.group = is_host ? comms.group_host : watched(device.group, "the group's devices'");
  comms.replicas =
      is_host ? comms.replicas_host : watched(device.replicas, "the replicas' devices'");
  return comms;
}

}  // namespace lockstep
