#pragma once

#include "lockstep/compute/compute.hpp"
#include "lockstep/health/run_watch.hpp"
#include "lockstep/parallel/parallel_state.hpp"

namespace lockstep {

/// The communicators of the state. Those of --shard hybrid are watched unless `watch` is null.
/// `host`, `arenas`: over all ranks.
[[nodiscard]] ShardComms shard_comms(Compute& compute, RunWatch* watch, Communicator& host,
                                     Communicator& arenas);

}  // namespace lockstep
