#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"

#include <optional>

namespace lockstep {

/// With fewer ranks, smaller groups save little.
constexpr int fewest_ranks_for_hybrid = 64;
/// Whether a step of `hybrid` seconds in place of `now` is worth a change of --shard.
[[nodiscard]] constexpr bool is_worth_hybrid(double hybrid, double now) noexcept {
  return hybrid <= 0.9 * now;
}

/// Mean of measured steps of a run whose state is sharded over all ranks.
struct MeasuredSteps {
  int nodes = 1;
  int ranks_per_node = 1;
  double seconds = 0;            ///< of a step, without waiting for data
  double images_per_second = 0;  ///< of this rank while it computes
};

/// What --shard hybrid would do instead.
struct HybridPrediction {
  int group = 0;
  double seconds = 0;  ///< of a step
};

/// An estimate of the step with --shard hybrid in groups of a node's ranks (of 8 nodes, if nodes
/// have one rank). One measurement cannot tell the network from a node's memory and cores: assumes
/// that messages within nodes take no time, no message takes the cores, and the network has the
/// rate at which the prediction of the measured step equals its time. nullopt if the ranks cannot
/// be divided into such groups. Pure.
[[nodiscard]] std::optional<HybridPrediction> predict_hybrid(Config config, const Graph& graph,
                                                             const MeasuredSteps& measured);

}  // namespace lockstep
