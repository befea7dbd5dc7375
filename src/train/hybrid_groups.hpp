#pragma once

#include "lockstep/compute/compute.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "run_watch.hpp"

namespace lockstep {

/// The watched communicators of --shard hybrid; empty for other modes.
[[nodiscard]] HybridComms watched_groups(Compute& compute, RunWatch& watch);

}  // namespace lockstep
