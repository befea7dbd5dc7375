#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/health/sharding_watch.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// A warning if --shard hybrid could shorten a run's steps, whose means on rank 0 are `means`: with
/// --shard grad or full over fewest_ranks_for_hybrid ranks or more, the same number on each of
/// several nodes. `config` is the resolved one. Pure.
[[nodiscard]] std::optional<std::string> hybrid_advice(const Config& config, const Graph& graph,
                                                       int ranks, int nodes,
                                                       const ShardingWatch::Means& means);

}  // namespace lockstep
