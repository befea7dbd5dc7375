#pragma once

#include "lockstep/compute/compute.hpp"
#include "lockstep/health/run_watch.hpp"
#include "lockstep/parallel/parallel_state.hpp"

namespace lockstep {

/// The communicators of --shard hybrid, watched unless `watch` is null; empty for other modes.
[[nodiscard]] HybridComms hybrid_groups(Compute& compute, RunWatch* watch);

}  // namespace lockstep
