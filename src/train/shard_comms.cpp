#include "shard_comms.hpp"

namespace lockstep {

ShardComms shard_comms(Compute& compute, RunWatch* watch, Communicator& host,
                       Communicator& arenas) {
  using Callers = RunWatch::Callers;
  const auto watched = [&](Communicator* comm, const char* name, Callers callers = Callers::all) {
    return comm == nullptr || watch == nullptr ? comm : &watch->watched(*comm, name, callers);
  };
  const Compute::Groups on_host = compute.host_group_communicators();
  if (on_host.group == nullptr) return {.all = arenas, .group_host = host, .group = arenas};
  if (watch != nullptr) watch->compare_in_groups(on_host.group->size());
  // Saves gather only in the first group.
  Communicator* const group = watched(on_host.group, "the group's", Callers::group);
  Communicator* const replicas = watched(on_host.replicas, "the replicas'");
  const Compute::Groups on_device = compute.group_communicators();
  const bool is_host = on_device.group == on_host.group;
  return {.all = arenas,
          .group_host = *group,
          .group = is_host ? *group : *watched(on_device.group, "the group's devices'"),
          .replicas_host = replicas,
          .replicas = is_host ? replicas : watched(on_device.replicas, "the replicas' devices'")};
}

}  // namespace lockstep
